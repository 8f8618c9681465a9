// Does with a mutex of redsync what it is told, a line of JSON each, and says how that ended.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

type request struct {
	Do   string
	Port int
	Name string
	TTL  int // in milliseconds
}

func main() {
	var mutex *redsync.Mutex
	for input := bufio.NewScanner(os.Stdin); input.Scan(); {
		var asked request
		if err := json.Unmarshal(input.Bytes(), &asked); err != nil {
			answer(nil, err)
			continue
		}
		switch asked.Do {
		case "mutex":
			client := redis.NewClient(&redis.Options{Addr: fmt.Sprintf("127.0.0.1:%d", asked.Port), MaxRetries: -1})
			expiry := time.Duration(asked.TTL) * time.Millisecond
			mutex = redsync.New(goredis.NewPool(client)).NewMutex(asked.Name, redsync.WithExpiry(expiry),
				redsync.WithSetNXOnExtend())
			answer(nil, nil)
		case "lock":
			answer(true, mutex.TryLock())
		case "extend":
			answer(mutex.Extend())
		default:
			answer(nil, fmt.Errorf("unknown: %s", asked.Do))
		}
	}
}

func answer(value any, err error) {
	said := map[string]any{"value": value}
	if err != nil {
		said = map[string]any{"error": err.Error()}
	}
	line, _ := json.Marshal(said)
	fmt.Println(string(line))
}
