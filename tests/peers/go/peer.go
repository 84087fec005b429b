// SPDX-License-Identifier: Apache-2.0

// grpc-go (Debian's, which sends the raw socket path as :authority) against src/grpc. Messages are
// plain bytes.
//
//	peer CHECK SOCKET                  one check as a client; exit status 0 when it holds
//	peer serve-BEHAVIOUR SOCKET BACK   serves Registration/Register until stdin ends
package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/ioutil"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

type raw struct{}

func (raw) Marshal(v interface{}) ([]byte, error)      { return *(v.(*[]byte)), nil }
func (raw) Unmarshal(data []byte, v interface{}) error { *(v.(*[]byte)) = data; return nil }
func (raw) Name() string                               { return "proto" }
func (raw) String() string                             { return "proto" }

func must(ok bool, what ...interface{}) {
	if !ok {
		fmt.Fprintln(os.Stderr, what...)
		os.Exit(1)
	}
}

func connect(path string) *grpc.ClientConn {
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}
	c, err := grpc.Dial(path, grpc.WithInsecure(), grpc.WithContextDialer(dial),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(raw{}), grpc.MaxCallRecvMsgSize(64<<20)))
	must(err == nil, err)
	return c
}

func unary(c *grpc.ClientConn, path string, message []byte, timeout time.Duration) ([]byte, codes.Code) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	var answer []byte
	err := c.Invoke(ctx, path, &message, &answer)
	return answer, status.Code(err)
}

func expect(c *grpc.ClientConn, path string, message []byte, wanted codes.Code) []byte {
	answer, code := unary(c, path, message, 20*time.Second)
	must(code == wanted, path, "gave", code)
	return answer
}

func stream(ctx context.Context, c *grpc.ClientConn, path string, message []byte) grpc.ClientStream {
	s, err := c.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, path)
	must(err == nil, err)
	must(s.SendMsg(&message) == nil && s.CloseSend() == nil, "cannot send")
	return s
}

func next(s grpc.ClientStream) []byte {
	var message []byte
	err := s.RecvMsg(&message)
	must(err == nil, err)
	return message
}

func end(s grpc.ClientStream) codes.Code {
	var message []byte
	err := s.RecvMsg(&message)
	if err == io.EOF {
		return codes.OK
	}
	return status.Code(err)
}

var checks = map[string]func(c *grpc.ClientConn){
	"echo": func(c *grpc.ClientConn) {
		for _, size := range []int{0, 1, 70000, 2 << 20} {
			message := bytes.Repeat([]byte{7}, size)
			must(bytes.Equal(expect(c, "/berth.Test/Echo", message, codes.OK), message), size)
		}
	},
	"large": func(c *grpc.ClientConn) {
		expect(c, "/berth.Test/Echo", make([]byte, 5<<20), codes.ResourceExhausted)
		must(len(expect(c, "/berth.Test/Fill", []byte("4194304"), codes.OK)) == 4<<20, "size")
		expect(c, "/berth.Test/Fill", []byte("4194305"), codes.ResourceExhausted)
		expect(c, "/berth.Test/Echo", []byte("x"), codes.OK)
	},
	"status": func(c *grpc.ClientConn) {
		for code := 1; code <= 16; code++ {
			expect(c, "/berth.Test/Fail", []byte(strconv.Itoa(code)+" text"), codes.Code(code))
		}
	},
	"unknown": func(c *grpc.ClientConn) { expect(c, "/berth.Test/None", nil, codes.Unimplemented) },
	"undecodable": func(c *grpc.ClientConn) {
		expect(c, "/v1beta1.DevicePlugin/Allocate", []byte{255, 255}, codes.InvalidArgument)
	},
	"deadline": func(c *grpc.ClientConn) {
		_, code := unary(c, "/berth.Test/Hold", nil, 300*time.Millisecond)
		must(code == codes.DeadlineExceeded, code)
	},
	"stream-deadline": func(c *grpc.ClientConn) {
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		defer cancel()
		s := stream(ctx, c, "/berth.Test/Watch", nil)
		next(s)
		code := end(s)
		must(code == codes.DeadlineExceeded, code)
	},
	"cancel": func(c *grpc.ClientConn) {
		ctx, cancel := context.WithCancel(context.Background())
		s := stream(ctx, c, "/berth.Test/Watch", nil)
		next(s)
		cancel()
		code := end(s)
		must(code == codes.Canceled, code)
	},
	"count": func(c *grpc.ClientConn) {
		s := stream(context.Background(), c, "/berth.Test/Count", []byte("500"))
		for i := 0; i < 500; i++ {
			must(string(next(s)) == strconv.Itoa(i), i)
		}
		code := end(s)
		must(code == codes.OK, code)
	},
	"streams": func(c *grpc.ClientConn) {
		for i := 0; i < 50; i++ {
			next(stream(context.Background(), c, "/berth.Test/Watch", nil))
		}
		var all sync.WaitGroup
		for i := 0; i < 200; i++ {
			all.Add(1)
			go func(text string) {
				defer all.Done()
				must(string(expect(c, "/berth.Test/Echo", []byte(text), codes.OK)) == text, text)
			}(strconv.Itoa(i))
		}
		all.Wait()
	},
	"plugin": func(c *grpc.ClientConn) {
		options := expect(c, "/v1beta1.DevicePlugin/GetDevicePluginOptions", nil, codes.OK)
		must(bytes.Equal(options, []byte{8, 1, 16, 1}), options)
		list := next(stream(context.Background(), c, "/v1beta1.DevicePlugin/ListAndWatch", nil))
		must(bytes.Contains(list, []byte("fake-2")), list)
	},
}

var behaviours = map[string]func(ctx context.Context) ([]byte, error){
	"serve-ok":    func(context.Context) ([]byte, error) { return []byte("ok"), nil },
	"serve-error": func(context.Context) ([]byte, error) { return nil, status.Error(codes.FailedPrecondition, "not now") },
	"serve-hang":  func(context.Context) ([]byte, error) { select {} },
	"serve-dial": func(context.Context) ([]byte, error) {
		return expect(connect(os.Args[3]), "/v1beta1.DevicePlugin/GetDevicePluginOptions", nil, codes.OK), nil
	},
}

func serve(behaviour func(ctx context.Context) ([]byte, error)) {
	handler := func(_ interface{}, ctx context.Context, decode func(interface{}) error,
		_ grpc.UnaryServerInterceptor) (interface{}, error) {
		var message []byte
		if err := decode(&message); err != nil {
			return nil, err
		}
		answer, err := behaviour(ctx)
		return &answer, err
	}
	server := grpc.NewServer(grpc.CustomCodec(raw{}))
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "v1beta1.Registration",
		HandlerType: (*interface{})(nil),
		Methods:     []grpc.MethodDesc{{MethodName: "Register", Handler: handler}},
	}, nil)
	listener, err := net.Listen("unix", os.Args[2])
	must(err == nil, err)
	fmt.Println("ready")
	go server.Serve(listener)
	ioutil.ReadAll(os.Stdin)
}

func main() {
	if behaviour := behaviours[os.Args[1]]; behaviour != nil {
		serve(behaviour)
		return
	}
	checks[os.Args[1]](connect(os.Args[2]))
}
