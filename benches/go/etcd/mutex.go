// Cycles and hand-overs of the Mutex in etcd's own client, for `cargo bench -- etcd`.
//
// Its argument is the address of an etcd. Each line of input asks for one: `cycle`, or `pass`, which tells how long
// after a release another session, which waits, has the lock. The answer is a line with nanoseconds.
package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"os"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

var background = context.Background()

func main() {
	log.SetPrefix("mutex: ")
	one, other := connect(), connect()
	for input := bufio.NewScanner(os.Stdin); input.Scan(); {
		switch input.Text() {
		case "cycle":
			fmt.Println(cycle(one).Nanoseconds())
		default:
			fmt.Println(pass(one, other).Nanoseconds())
		}
	}
}

// Its lease is kept alive, as programs have it: one session for all cycles.
func connect() *concurrency.Session {
	client, err := clientv3.New(clientv3.Config{Endpoints: os.Args[1:], DialTimeout: 5 * time.Second})
	check(err)
	session, err := concurrency.NewSession(client, concurrency.WithTTL(30))
	check(err)
	return session
}

func cycle(session *concurrency.Session) time.Duration {
	mutex := concurrency.NewMutex(session, "bench")
	begun := time.Now()
	check(mutex.Lock(background))
	check(mutex.Unlock(background))
	return time.Since(begun)
}

func pass(one, other *concurrency.Session) time.Duration {
	held, wanted := concurrency.NewMutex(one, "pass"), concurrency.NewMutex(other, "pass")
	check(held.Lock(background))
	got := make(chan time.Time)
	go func() {
		check(wanted.Lock(background))
		got <- time.Now()
	}()
	// It stands in line by then, and holders are not in a hurry.
	time.Sleep(10 * time.Millisecond)
	begun := time.Now()
	check(held.Unlock(background))
	taken := (<-got).Sub(begun)
	check(wanted.Unlock(background))
	return taken
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
