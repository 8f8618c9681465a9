package main

import (
	"testing"

	"github.com/anishathalye/porcupine"
)

func lease(fence uint64, asked, from, over int64) []porcupine.Operation {
	return []porcupine.Operation{
		{Input: operation{true, fence}, Call: asked, Return: from},
		{Input: operation{false, fence}, Call: over, Return: 1 << 62},
	}
}

// That the model does find what it is there for, and nothing else.
func TestTheModelFindsTwoHoldersAndFencesOutOfOrder(t *testing.T) {
	for _, told := range []struct {
		what     string
		one, two []porcupine.Operation
		isRight  bool
	}{
		{"one after the other", lease(1, 0, 1, 5), lease(2, 2, 6, 9), true},
		{"two at a time", lease(1, 0, 1, 5), lease(2, 2, 4, 9), false},
		{"a smaller fence", lease(2, 0, 1, 5), lease(1, 6, 7, 9), false},
		{"a smaller fence, of one who asked first and may have had it first", lease(2, 1, 9, 11), lease(1, 0, 9, 9), true},
		{"the same fence", lease(1, 0, 1, 5), lease(1, 6, 7, 9), false},
	} {
		if porcupine.CheckOperations(mutexWithFence, append(told.one, told.two...)) != told.isRight {
			t.Error(told.what)
		}
	}
}
