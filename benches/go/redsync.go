// redsync's cycles, for `cargo bench -- cycle --beside redsync`, and for `groups quorum3`.
//
// Its argument is the name of a lock, and LEASEHOLD_URL has one server or several with commas between. Each line of
// input is a number; the answer is a line with what so many cycles took, in nanoseconds.
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
	var pools []redis.Pool
	for _, url := range strings.Split(os.Getenv("LEASEHOLD_URL"), ",") {
		options, err := goredis_client.ParseURL(url)
		if err != nil {
			log.Fatal(err)
		}
		pools = append(pools, goredis.NewPool(goredis_client.NewClient(options)))
	}
	locks := redsync.New(pools...)
	output := bufio.NewWriter(os.Stdout)
	for input := bufio.NewScanner(os.Stdin); input.Scan(); {
		count, err := strconv.Atoi(input.Text())
		if err != nil {
			log.Fatal(err)
		}
		for ; count > 0; count-- {
			begun := time.Now()
			cycle(locks, os.Args[1])
			fmt.Fprintf(output, "%d ", time.Since(begun).Nanoseconds())
		}
		fmt.Fprintln(output)
		output.Flush()
	}
}

func cycle(locks *redsync.Redsync, name string) {
	mutex := locks.NewMutex(name, redsync.WithExpiry(30*time.Second), redsync.WithTries(1))
	if err := mutex.Lock(); err != nil {
		log.Fatal(err)
	}
	if done, err := mutex.Unlock(); !done || err != nil {
		log.Fatal("the lock was lost: ", err)
	}
}
