package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// run tries the mutants that the flags choose.
func run(ctx context.Context) error {
	var s sample
	flag.StringVar(&s.match, "match", "", "try the mutants whose file or description has this `text`")
	flag.IntVar(&s.size, "some", 0, "try so many at most; 0 is all")
	flag.StringVar(&s.seed, "seed", "", "what chooses them")
	changed := flag.String("changed", "", "`files`, separated by spaces, whose mutants come first")
	at := flag.Int("at", 2, "how many to try at once")
	flag.Parse()
	s.changed = strings.Fields(*changed)
	root, err := filepath.Abs("..")
	if err != nil {
		return err
	}
	all, err := readAll("mutants")
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	overlay, err := writeOverlay(folder, root, all)
	if err != nil {
		return err
	}
	binaries, err := build(ctx, root, folder, overlay)
	if err != nil {
		return err
	}
	for _, b := range binaries {
		if ok, err := b.passes(ctx, root, 0); !ok || err != nil {
			return errors.Join(fmt.Errorf("the tests of %s fail without any mutant", b.folder), err)
		}
	}
	return tryAll(s.choose(all), *at, func(m mutant, number int) (bool, error) { return isCaught(ctx, root, binaries, m, number) })
}

// trial is a mutant and what became of it.
type trial struct {
	mutant
	number int
	caught bool
	err    error
}

// tryAll tries mutants, some at once, and prints those that were not caught.
func tryAll(chosen []trial, at int, isCaught func(m mutant, number int) (bool, error)) error {
	start := time.Now()
	todo, done := make(chan trial), make(chan trial)
	for range max(at, 1) {
		go func() {
			for t := range todo {
				t.caught, t.err = isCaught(t.mutant, t.number)
				done <- t
			}
		}()
	}
	go func() {
		defer close(todo)
		for _, t := range chosen {
			todo <- t
		}
	}()
	var failed error
	missed := 0
	for range chosen {
		if t := <-done; !t.caught {
			missed++
			fmt.Println("not caught:", t.mutant)
			failed = errors.Join(failed, t.err)
		}
	}
	fmt.Printf("%d of %d mutants caught, in %d s\n", len(chosen)-missed, len(chosen), int(time.Since(start).Seconds()))
	if missed > 0 {
		return errors.Join(fmt.Errorf("%d mutants were not caught", missed), failed)
	}
	return nil
}
