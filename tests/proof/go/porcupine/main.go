// Reads histories of locks from standard input, in EDN, and has porcupine, a checker of linearizability that
// others wrote, say whether they can be those of a mutex with fences; with the argument `plain`, whether they can be
// those of a mutex. Prints, for each lock, how many operations there were and what came of them. Exits with 1 if a
// history cannot be.
package main

import (
	"bufio"
	"fmt"
	"os"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"
)

// The model. A mutex grants when it is free, with a larger fence than ever before, and is free again when
// the lease with that fence is over.
type state struct{ holder, largest uint64 }
type operation struct {
	acquires bool
	fence    uint64
}

var mutexWithFence = porcupine.Model{
	Init: func() any { return state{} },
	Step: func(before, asked, _ any) (bool, any) {
		was, does := before.(state), asked.(operation)
		if does.acquires {
			return was.holder == 0 && (plain || does.fence > was.largest), state{does.fence, does.fence}
		}
		return was.holder == does.fence, state{0, was.largest}
	},
}

var plain = len(os.Args) > 1 && os.Args[1] == "plain"

const longest = 2 * time.Minute

func main() {
	histories := map[int][]porcupine.Operation{}
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		var lock, client int
		var what string
		var does operation
		var call, end int64
		form := "{:lock %d, :process %d, :f :%s :value %d, :invoke %d, :complete %d}"
		if _, err := fmt.Sscanf(input.Text(), form, &lock, &client, &what, &does.fence, &call, &end); err != nil {
			fmt.Println("no operation:", input.Text(), err)
			os.Exit(2)
		}
		does.acquires = what == "acquire,"
		histories[lock] = append(histories[lock],
			porcupine.Operation{ClientId: client, Input: does, Call: call, Return: end})
	}
	locks := make([]int, 0, len(histories))
	for lock := range histories {
		locks = append(locks, lock)
	}
	sort.Ints(locks)
	status := 0
	for _, lock := range locks {
		result := porcupine.CheckOperationsTimeout(mutexWithFence, histories[lock], longest)
		fmt.Printf("%d %d %s\n", lock, len(histories[lock]), result)
		if result != porcupine.Ok {
			status = 1
		}
	}
	os.Exit(status)
}
