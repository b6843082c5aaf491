package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// This module is within its limits.
func TestLimits(t *testing.T) {
	folder := filepath.Join("..", "..")
	h, err := measure(folder, filepath.Join(folder, "caddymodule", "testdata", "rooms.txt"))
	if err != nil {
		t.Fatal(err)
	}
	figures, err := h.figures(folder)
	if err != nil {
		t.Fatal(err)
	}
	l, err := readLimits("limits.txt")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.check(figures); err != nil {
		t.Error(err)
	}
}

// A module in which a type has what it embeds, through a pointer and through another.
var embedding = map[string]string{
	"go.mod": "module example.com/small\n\ngo 1.26\n",
	"base/base.go": `package base

import "sync"

type Base struct {
	sync.Mutex
	a, b int
}

func (*Base) One() {}
func (Base) Two()  {}

type Plain struct{ c, d int }
`,
	"top/top.go": `package top

import "example.com/small/base"

type middle struct {
	*base.Base
	e int
}

func (middle) Three() {}

type Top struct {
	middle
	base.Plain
	f int
}

func (*Top) Four() {}

type Asks interface{ Ask() }

type uses struct {
	Asks
	top *Top
}
`,
	"docs/caddyfile.md":      "# Two options\n\n| option | |\n|---|---|\n| `a` | x |\n| `b <c>` | y |\n",
	"docs/evidence/words.md": "not counted\n",
	"README.md":              "three more words\n",
}

func TestReach(t *testing.T) {
	h, folder := build(t, embedding)
	want := map[string]structure{
		"base.Base": {reached: 2, wide: 3}, "base.Plain": {wide: 2},
		"top.middle": {reached: 3, wide: 4, shares: true}, "top.Top": {reached: 4, wide: 7, shares: true},
		"top.Asks": {reached: 1}, "top.uses": {reached: 1, wide: 2},
	}
	for _, r := range h.rooms {
		for _, s := range r.types {
			w := want[s.name]
			if s.reached != w.reached || s.wide != w.wide || s.shares != w.shares {
				t.Errorf("%s: got %+v, want %+v", s.name, s, w)
			}
			delete(want, s.name)
		}
	}
	if len(want) > 0 {
		t.Errorf("not measured: %v", want)
	}
	figures, err := h.figures(folder)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]int{
		"methods that one type reaches": 4, "types that embed one of ours with methods": 2, "options documented": 2, "words for people": 22,
	} {
		if err := (limits{name: value}).check(figures); err != nil {
			t.Error(err)
		}
		if err := (limits{name: value - 1}).check(figures); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s, at most %d: %v", name, value-1, err)
		}
	}
}

func TestLimitOfNothing(t *testing.T) {
	if err := (limits{"moons": 1}).check(nil); err == nil {
		t.Error("a limit of what is no figure passes")
	}
}
