// The resource that the locks guard, by itself: it knows no lock, no journal and no clock. It is told of writes,
// a line each, in the order in which it takes them:
//
//	write NAME FENCE     by a holder: answers accepted or refused
//	late NAME FENCE      by a holder that is over, on purpose, after the write of a later one
//	complain NAME FENCE  a write was refused, and its writer, asked after that, holds the lock
//
// It keeps two cells for each name. One compares fences and refuses a smaller one. The other takes everything,
// and is corrupted when an older writer overwrites a newer one. At `end` it prints what it counted.
package main

import (
	"bufio"
	"fmt"
	"os"
)

type cell struct{ fenced, plain uint64 }

type resource struct {
	cells                                                      map[string]*cell
	accepted, refused, offered, escaped, corrupted, outOfOrder uint64
}

func (all *resource) take(what, name string, fence uint64) string {
	if what == "complain" {
		all.outOfOrder++
		return "noted"
	}
	at := all.cells[name]
	if at == nil {
		at = &cell{}
		all.cells[name] = at
	}
	if fence < at.plain {
		all.corrupted++
	}
	at.plain = fence
	accepts := fence >= at.fenced
	if accepts {
		at.fenced = fence
	}
	switch {
	case what == "late":
		all.offered++
		if accepts {
			all.escaped++
		}
	case accepts:
		all.accepted++
	default:
		all.refused++
	}
	if accepts {
		return "accepted"
	}
	return "refused"
}

func main() {
	all := resource{cells: map[string]*cell{}}
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() && input.Text() != "end" {
		var what, name string
		var fence uint64
		if _, err := fmt.Sscan(input.Text(), &what, &name, &fence); err != nil {
			panic(err)
		}
		fmt.Println(all.take(what, name, fence))
	}
	fmt.Printf("writes %d\nwrites_refused %d\nlate_offered %d\nlate_accepted %d\n", all.accepted, all.refused, all.offered, all.escaped)
	fmt.Printf("corrupted_without_fence %d\nout_of_order %d\nresources %d\n", all.corrupted, all.outOfOrder, len(all.cells))
}
