package main

import (
	"cmp"
	"flag"
	"log"
	"os"
	"strings"
)

func main() {
	log.SetFlags(0)
	limitsFile := flag.String("limits", "house/limits.txt", "the `file` that has the limits")
	request := flag.String("passed", "", "print only what a round of this `package:benchmark` passes")
	flag.Parse()
	folder := cmp.Or(flag.Arg(0), "..")
	if name, benchmark, ok := strings.Cut(*request, ":"); ok {
		w, err := findExecuted(folder, name, benchmark)
		if err != nil {
			log.Fatal(err)
		}
		w.print(os.Stdout)
		return
	}
	l, err := readLimits(*limitsFile)
	if err != nil {
		log.Fatal(err)
	}
	figures, err := measure(folder)
	if err != nil {
		log.Fatal(err)
	}
	if err := printFigures(os.Stdout, figures, l); err != nil {
		log.Fatal(err)
	}
}

func measure(folder string) ([]figure, error) {
	size, err := sizeFigures(folder)
	if err != nil {
		return nil, err
	}
	documents, err := documentFigures(folder)
	if err != nil {
		return nil, err
	}
	types, err := typeFigures(folder)
	return append(append(size, documents...), types...), err
}
