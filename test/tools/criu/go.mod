// A tool of the tests; a module of its own, so that the product does not depend on it.
module runsc/test/tools/criu

go 1.26.8

require (
	github.com/checkpoint-restore/go-criu/v7 v7.2.0
	google.golang.org/protobuf v1.36.12
)
