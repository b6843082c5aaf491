package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
	_ "github.com/caddy-fhir/caddy-fhir/terminology/standard" // registers the code systems
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var o options
	flag.StringVar(&o.from, "from", "", "the `file` that has the terminology, if it is elsewhere than doc.go says")
	flag.StringVar(&o.synonyms, "synonyms", "", "a `file` with synonyms, or english")
	flag.StringVar(&o.weights, "weights", "", "a `file` that says how often codes are used")
	flag.BoolVar(&o.terms, "terms", false, "load ICD-10-CM's inclusion terms as designations")
	flag.BoolVar(&o.sums, "sums", false, "print no queries")
	flag.BoolVar(&o.misses, "misses", false, "print only the queries whose answer is not among the first three")
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	for _, name := range flag.Args() {
		if err := run(ctx, os.Stdout, name, o); err != nil {
			fmt.Fprintln(os.Stderr, "searchquality:", err)
			os.Exit(1)
		}
	}
}

// options contains the values of the command's flags.
type options struct {
	synonyms, weights   string
	from                string
	terms, sums, misses bool
}

// run runs the queries of the list with the given file name and prints the results.
func run(ctx context.Context, w io.Writer, name string, o options) error {
	l, err := readList(name)
	if err != nil {
		return err
	}
	s, err := open(ctx, l.terminology, o)
	if err != nil {
		return err
	}
	if err := s.check(l.questions); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	answers, err := s.askAll(ctx, l.questions)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(w, "%s: %d queries, %d codes\n\n", name, len(answers), len(s.codes)); err != nil {
		return err
	}
	if !o.sums {
		if err := printAnswers(w, answers, o.misses); err != nil {
			return err
		}
	}
	return printSums(w, answers)
}

// load returns the options for loading the definitions in files.
func (o options) load(files ...string) definitions.Options {
	l := definitions.Options{Definitions: files, Core: len(files) == 0}
	if o.synonyms != "" {
		l.Synonyms = []string{o.synonyms}
	}
	if o.weights != "" {
		l.Weights = []string{o.weights}
	}
	return l
}
