package shim

import (
	"errors"
	"fmt"

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
	case controlapi.CodeUnimplemented:
		class = errdefs.ErrNotImplemented
	default:
		return err
	}
	return fmt.Errorf("%w: %w", err, class)
}

// toGRPC is the last step of every call. containerd takes Unimplemented from
// some calls as "speak an older version", which hides the reason: those turn
// into FailedPrecondition.
func toGRPC(err error) error { return errgrpc.ToGRPC(err) }

func toGRPCNoDowngrade(err error) error {
	if errdefs.IsNotImplemented(err) {
		return errgrpc.ToGRPC(fail(errdefs.ErrFailedPrecondition, "%v", err))
	}
	return errgrpc.ToGRPC(err)
}
