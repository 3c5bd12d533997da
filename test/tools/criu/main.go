// Criu answers the one question that containerd's CRI asks a program of this name before it lets any runtime
// checkpoint a container: its version. It can do nothing else.
package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/checkpoint-restore/go-criu/v7/rpc"
	"google.golang.org/protobuf/proto"
)

func main() {
	if err := run(os.Args); err != nil {
		fmt.Fprintln(os.Stderr, "criu:", err)
		os.Exit(1)
	}
}

// run serves "criu swrk FD": one request on a socket of packets.
func run(args []string) error {
	if len(args) != 3 || args[1] != "swrk" {
		return errors.New("this one answers for its version only")
	}
	fd, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), "request")
	buf := make([]byte, 8192)
	n, err := f.Read(buf)
	if err != nil {
		return err
	}
	var req rpc.CriuReq
	if err := proto.Unmarshal(buf[:n], &req); err != nil {
		return err
	}
	if req.GetType() != rpc.CriuReqType_VERSION {
		return fmt.Errorf("request %v", req.GetType())
	}
	out, err := proto.Marshal(&rpc.CriuResp{
		Type:    rpc.CriuReqType_VERSION.Enum(),
		Success: proto.Bool(true),
		Version: &rpc.CriuVersion{MajorNumber: proto.Int32(4), MinorNumber: proto.Int32(0)},
	})
	if err != nil {
		return err
	}
	_, err = f.Write(out)
	return err
}
