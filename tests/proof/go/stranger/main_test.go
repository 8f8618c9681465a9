package main

import "testing"

// That the resource does notice what it is there for.
func TestAWriterThatComesLateIsRefusedAndCorruptsTheCellWithoutFences(t *testing.T) {
	all := resource{cells: map[string]*cell{}}
	for _, step := range []struct {
		what   string
		fence  uint64
		answer string
	}{
		{"write", 5, "accepted"},
		{"write", 5, "accepted"},
		{"write", 7, "accepted"},
		{"late", 5, "refused"},
		{"write", 6, "refused"},
		{"complain", 6, "noted"},
		{"late", 8, "accepted"},
	} {
		if answer := all.take(step.what, "stock", step.fence); answer != step.answer {
			t.Errorf("%s %d: %s", step.what, step.fence, answer)
		}
	}
	counted := [6]uint64{all.accepted, all.refused, all.offered, all.escaped, all.corrupted, all.outOfOrder}
	if counted != [6]uint64{3, 1, 2, 1, 1, 1} {
		t.Errorf("%v", counted)
	}
}
