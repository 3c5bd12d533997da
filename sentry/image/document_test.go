package image

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// TestDocument finds each record and each of its fields, with its number, in docs/image-format.md.
func TestDocument(t *testing.T) {
	text, err := os.ReadFile("../../docs/image-format.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]string{}
	heads := regexp.MustCompile(`(?m)^\*\*(\w+)\*\* \(`).FindAllSubmatchIndex(text, -1)
	for i, h := range heads {
		end := len(text)
		if i+1 < len(heads) {
			end = heads[i+1][0]
		}
		sections[string(text[h[2]:h[3]])] = strings.Join(strings.Fields(string(text[h[1]:end])), " ")
	}
	files, _ := filepath.Glob("*.go")
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.TypeSpec:
				if s, ok := n.Type.(*ast.StructType); ok {
					documented(t, n.Name.Name, s, sections)
				}
			case *ast.ValueSpec:
				kind, isKind := strings.CutPrefix(n.Names[0].Name, "Kind")
				if len(n.Values) != 1 || !isKind || kind == "End" {
					break
				}
				if v, ok := n.Values[0].(*ast.BasicLit); ok && !strings.HasPrefix(sections[kind], fmt.Sprintf("kind %s)", v.Value)) {
					t.Errorf("docs/image-format.md lacks %s of kind %s", kind, v.Value)
				}
			}
			return true
		})
	}
}

// documented checks the fields of one structure; what has no field with a number is no record.
func documented(t *testing.T, name string, s *ast.StructType, sections map[string]string) {
	for _, f := range s.Fields.List {
		if f.Tag == nil || len(f.Names) != 1 {
			continue
		}
		key, _, _ := strings.Cut(reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Get("cbor"), ",")
		if key != "" && ast.IsExported(name) && !strings.Contains(sections[name], key+" **"+f.Names[0].Name+"** ") {
			t.Errorf("docs/image-format.md lacks field %s %s of %s", key, f.Names[0].Name, name)
		}
	}
}
