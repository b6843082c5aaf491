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

// run runs the mutants selected by the flags.
func run(ctx context.Context) error {
	var s sample
	flag.StringVar(&s.match, "match", "", "try the mutants whose list, file or description has this `text`")
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
	chosen := s.choose(all)
	needed, err := complete(ctx, root, chosen)
	if err != nil {
		return err
	}
	start := time.Now()
	tests, err := build(ctx, root, folder, overlay, needed)
	if err != nil {
		return err
	}
	for _, s := range needed {
		if ok, err := tests.passes(ctx, s, 0); !ok || err != nil {
			return errors.Join(fmt.Errorf("tests of %s fail without any mutant", s.folder), err)
		}
	}
	fmt.Printf("%d test binaries built and run without a mutant, in %d s\n", len(tests.files), int(time.Since(start).Seconds()))
	return tryAll(chosen, *at, func(t trial) (bool, error) { return tests.catches(ctx, t) })
}

// trial is a mutant with its number and result.
type trial struct {
	mutant
	number int
	caught bool
	err    error
}

// tryAll runs mutants concurrently and prints those that no test caught.
func tryAll(chosen []trial, at int, isCaught func(trial) (bool, error)) error {
	start := time.Now()
	todo, done := make(chan trial), make(chan trial)
	for range max(at, 1) {
		go func() {
			for t := range todo {
				t.caught, t.err = isCaught(t)
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
