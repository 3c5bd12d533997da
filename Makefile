# Everything a developer, a tester or CI does has a target here; `make help` lists them.

GO      ?= go
SHIM    := bin/containerd-shim-runsc-v1
RIG_DIR ?= $(CURDIR)/build/rig
LDFLAGS := -s -w
export CGO_ENABLED := 0
export RIG_DIR

# Packages of this module; modules of their own (test/tools) are left out by the go command.
PKGS := ./...

.PHONY: help build test unit system lockrank lint bench peer demo generate check rig clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | sort | expand -t 12

build: ## one static binary, bin/containerd-shim-runsc-v1
	$(GO) build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' -o $(SHIM) ./cmd/containerd-shim-runsc-v1

test: build lint unit system ## what CI runs: build, lint, unit tests, whole-system tests

unit: ## unit tests, the tests of layers and of the repository among them
	timeout 600 $(GO) test -timeout 300s $(PKGS)

system: build rig ## whole-system tests on a private containerd; RUN=regexp picks some, RUNTIME= another runtime
	timeout 1200 $(GO) test -count 1 -timeout 1170s -tags system $(if $(RUN),-run '$(RUN)') $(if $(V),-v) ./test/system

lockrank: ## unit tests with the lock order checked at run time
	timeout 600 $(GO) test -timeout 300s -tags lockrank $(PKGS)

lint: build/staticcheck ## go vet and staticcheck (formatting is a unit test)
	$(GO) vet $(PKGS)
	$(GO) vet -tags system ./test/...
	build/staticcheck $(PKGS)
	build/staticcheck -tags system ./test/...

build/staticcheck: test/tools/lint/go.mod test/tools/lint/go.sum
	$(GO) build -C test/tools/lint -o $(CURDIR)/$@ honnef.co/go/tools/cmd/staticcheck

bench: build rig ## time single operations and whole runs: native, runc, gVisor's runsc if built, this runtime
	$(GO) run ./test/bench $(BENCH)

peer: ## build gVisor's runsc for make bench to compare with (takes minutes)
	test/bench/peer.sh

demo: ## run a container through the shim on a private containerd, on a bare Debian with Go and root
	test/demo.sh

rig: ## build containerd, runc's shim, crictl, guest programs and images for the tests
	test/rig/build.sh

generate: ## write generated files again: docs/syscalls.md from the table of calls
	$(GO) test ./sentry/syscalls -run TestDocs -update

check: generate ## fail if a generated file is not what generate writes
	git diff --exit-code -- docs/syscalls.md

clean: ## remove what was built
	rm -rf bin build
