// A miniredis that a test connects to: prints its address, and ends with its standard input.
package main

import (
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"github.com/alicebob/miniredis/v2"
)

func main() {
	server := miniredis.NewMiniRedis()
	if err := server.Start(); err != nil {
		log.Fatal(err)
	}
	go letTimePass(server)
	fmt.Println(server.Addr())
	io.Copy(io.Discard, os.Stdin)
	server.Close()
}

// By itself, a key of miniredis never expires.
func letTimePass(server *miniredis.Miniredis) {
	for last := time.Now(); ; {
		time.Sleep(5 * time.Millisecond)
		now := time.Now()
		server.FastForward(now.Sub(last))
		last = now
	}
}
