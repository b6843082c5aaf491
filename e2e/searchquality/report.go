package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// printAnswers prints all answers or, if misses is true, only those without a wanted hit in the first three.
func printAnswers(w io.Writer, answers []answer, misses bool) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "rank\thits\tquery\tfound")
	for i := range answers {
		if a := &answers[i]; !misses || !a.within(3) {
			fmt.Fprintf(table, "%s\t%d\t%s\t%s\n", a.place(), a.total, a.query, a.found())
		}
	}
	fmt.Fprintln(table)
	return table.Flush()
}

// within reports whether the first wanted hit is among the first ranks hits.
func (a *answer) within(ranks int) bool { return a.rank > 0 && a.rank <= ranks }

// place returns the rank as text for the output.
func (a *answer) place() string {
	if a.rank == 0 {
		return "-"
	}
	return fmt.Sprint(a.rank)
}

// found returns the wanted hit. If it is not the first hit, found also returns the first hits and the wanted codes.
func (a *answer) found() string {
	var text strings.Builder
	if a.rank > 0 {
		fmt.Fprintf(&text, "%s %s", a.hit.Code, a.hit.Display)
	}
	if a.rank == 1 {
		return text.String()
	}
	if a.rank == 0 {
		fmt.Fprintf(&text, "want %s", strings.Join(a.wanted, " "))
	}
	for i, c := range a.first[:min(3, len(a.first))] {
		separator := " | "
		if i == 0 {
			separator = "; first "
		}
		fmt.Fprintf(&text, "%s%s %s", separator, c.Code, c.Display)
	}
	return text.String()
}

// sum contains counts over several answers.
type sum struct {
	category                       string
	queries, first, three, ten, no int
	reciprocal                     float64
}

func (s *sum) add(a *answer) {
	s.queries++
	for ranks, n := range map[int]*int{1: &s.first, 3: &s.three, pageSize: &s.ten} {
		if a.within(ranks) {
			*n++
		}
	}
	if a.total == 0 {
		s.no++
	}
	if a.within(pageSize) {
		s.reciprocal += 1 / float64(a.rank)
	}
}

// sums returns the sums by category, in the order of the list, and the total.
func sums(answers []answer) []sum {
	all, at := []sum{}, map[string]int{}
	for i := range answers {
		category := answers[i].category
		if _, ok := at[category]; !ok {
			at[category] = len(all)
			all = append(all, sum{category: category})
		}
		all[at[category]].add(&answers[i])
	}
	total := sum{category: "all"}
	for i := range answers {
		total.add(&answers[i])
	}
	return append(all, total)
}

func printSums(w io.Writer, answers []answer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "category\tqueries\tfirst\tin 3\tin 10\tMRR\tno hits\t")
	for _, s := range sums(answers) {
		fmt.Fprintf(table, "%s\t%d\t%s\t%s\t%s\t%.3f\t%d\t\n", s.category, s.queries,
			s.share(s.first), s.share(s.three), s.share(s.ten), s.reciprocal/float64(s.queries), s.no)
	}
	return table.Flush()
}

// share returns a number of queries and its percentage as text.
func (s *sum) share(n int) string {
	return fmt.Sprintf("%d %3.0f%%", n, 100*float64(n)/float64(s.queries))
}
