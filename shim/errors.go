package shim

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"

	"runsc/pkg/controlapi"
)

// fail makes an error of one of errdefs's classes.
func fail(class error, format string, args ...any) error {
	return fmt.Errorf(format+": %w", append(args, class)...)
}

// fromSentry gives an error of a control call the class that containerd acts
// on. An ended channel means that the sandbox is gone.
func fromSentry(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, controlapi.ErrClosed) {
		return fail(errdefs.ErrUnavailable, "the sandbox has ended")
	}
	var class error = errdefs.ErrUnknown
	switch controlapi.CodeOf(err) {
	case controlapi.CodeNotFound:
		class = errdefs.ErrNotFound
	case controlapi.CodeAlreadyExists:
		class = errdefs.ErrAlreadyExists
	case controlapi.CodeFailedPrecondition:
		class = errdefs.ErrFailedPrecondition
	case controlapi.CodeInvalidArgument:
		class = errdefs.ErrInvalidArgument
	case controlapi.CodeCanceled:
		class = context.Canceled
	case controlapi.CodeUnimplemented:
		class = errdefs.ErrNotImplemented
	default:
		return err
	}
	return fmt.Errorf("%w: %w", err, class)
}

// answer is an error as a client gets it: one text, one class. Lists of errors
// would come out as several lines at the client's end.
type answer struct {
	text  string
	class error
}

func (a answer) Error() string { return a.text }
func (a answer) Unwrap() error { return a.class }

// toGRPC is the last step of every call.
func toGRPC(err error) error {
	class := errdefs.Resolve(err)
	if class == nil {
		return nil
	}
	text := strings.TrimSuffix(err.Error(), ": "+class.Error())
	return errgrpc.ToGRPC(answer{text: text, class: class})
}

// toGRPCNoDowngrade is for the calls after whose Unimplemented containerd tries
// again with an older version of the API, which hides the reason.
func toGRPCNoDowngrade(err error) error {
	if errdefs.IsNotImplemented(err) {
		err = answer{text: err.Error(), class: errdefs.ErrFailedPrecondition}
	}
	return toGRPC(err)
}
