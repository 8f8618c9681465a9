// redsync's cycles, for `cargo bench -- cycle --beside redsync`, and for `groups quorum3`; and hand-overs for `pass`.
//
// Its argument is the name of a lock, and LEASEHOLD_URL has one server or several with commas between. Each line of
// input is a number; the answer is a line with what so many cycles took, in nanoseconds. A line "pass N" asks for one
// hand-over to a mutex that has waited for N nanoseconds.
package main

import (
	"bufio"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredis_client "github.com/redis/go-redis/v9"
)

func main() {
	log.SetPrefix("redsync: ")
	one, other := connect(), connect()
	output := bufio.NewWriter(os.Stdout)
	for input := bufio.NewScanner(os.Stdin); input.Scan(); {
		number, isPass := strings.CutPrefix(input.Text(), "pass ")
		count, err := strconv.Atoi(number)
		check(err)
		if isPass {
			fmt.Fprint(output, pass(one, other, os.Args[1], time.Duration(count)).Nanoseconds())
			count = 0
		}
		for ; count > 0; count-- {
			begun := time.Now()
			cycle(one, os.Args[1])
			fmt.Fprintf(output, "%d ", time.Since(begun).Nanoseconds())
		}
		fmt.Fprintln(output)
		output.Flush()
	}
}

func connect() *redsync.Redsync {
	var pools []redis.Pool
	for _, url := range strings.Split(os.Getenv("LEASEHOLD_URL"), ",") {
		options, err := goredis_client.ParseURL(url)
		check(err)
		pools = append(pools, goredis.NewPool(goredis_client.NewClient(options)))
	}
	return redsync.New(pools...)
}

func cycle(locks *redsync.Redsync, name string) {
	mutex := locks.NewMutex(name, redsync.WithExpiry(30*time.Second), redsync.WithTries(1))
	check(mutex.Lock())
	unlock(mutex)
}

func pass(one, other *redsync.Redsync, name string, waited time.Duration) time.Duration {
	held, wanted := one.NewMutex(name), other.NewMutex(name)
	check(held.Lock())
	got := make(chan time.Time)
	go func() {
		check(wanted.Lock())
		got <- time.Now()
	}()
	time.Sleep(waited)
	begun := time.Now()
	unlock(held)
	taken := (<-got).Sub(begun)
	unlock(wanted)
	return taken
}

func unlock(mutex *redsync.Mutex) {
	if done, err := mutex.Unlock(); !done || err != nil {
		log.Fatal("the lock was lost: ", err)
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
