package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// measureTyping measures typed requests against an earlier gateway binary.
func measureTyping(s settings, folder string) error {
	if s.before == "" {
		return errors.New("-before names no binary to compare with")
	}
	for _, size := range s.sizes {
		if err := measureTypingIn(s, folder, size); err != nil {
			return fmt.Errorf("%d concepts: %w", size, err)
		}
	}
	return nil
}

// measureTypingIn measures typed requests to both binaries with a code system of the given size.
func measureTypingIn(s settings, folder string, concepts int) (err error) {
	definitions := filepath.Join(folder, "synthetic-"+strconv.Itoa(concepts)+".json")
	if err := generate(definitions, concepts); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(definitions)) }()
	before, err := startExpand(s.before, folder, "before", definitions)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, before.stop()) }()
	now, err := startExpand(s.binary, folder, "now", definitions)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, now.stop()) }()
	sample, err := sampleConcepts(now, query("all"), concepts)
	if err != nil {
		return err
	}
	fmt.Printf("\n## %d concepts\n\n| typed | CPU before | now | ratio | p99 before | now |\n|---|--:|--:|--:|--:|--:|\n", concepts)
	for _, sc := range typedScenarios(sample) {
		if err := typingRow(s, before, now, sc); err != nil {
			return fmt.Errorf("%s: %w", sc.name, err)
		}
	}
	for _, g := range []*server{before, now} {
		resident, peak, err := g.resident()
		if err != nil {
			return err
		}
		fmt.Printf("\n%d MiB resident, %d at most.\n", resident, peak)
	}
	return nil
}

// typedScenarios returns scenarios of text that a user could type for the concepts: each prefix of a word or code, words,
// typos, and words that match nothing.
func typedScenarios(sample []coding) []scenario {
	all, byLength := query("all"), make([][]string, longest)
	var words, codes, several, typos, nothing []string
	for _, c := range sample {
		fields := strings.Fields(c.Display)
		for _, text := range append(slices.Clone(fields), c.Code) {
			addTyped(byLength, all, []rune(text))
		}
		word := []rune(slices.MaxFunc(fields, func(a, b string) int { return cmp.Compare(len(a), len(b)) }))
		half := len(word) / 2
		words = append(words, filterPath(all, fields[0]))
		codes = append(codes, filterPath(all, c.Code))
		several = append(several, filterPath(all, strings.Join(fields[:min(3, len(fields))], " ")))
		typos = append(typos, filterPath(all, string(word[:half])+"q"+string(word[half:])))
		nothing = append(nothing, filterPath(all, "zqx"+string(word)))
	}
	var scenarios []scenario
	for i, paths := range byLength {
		scenarios = append(scenarios, scenario{name: strconv.Itoa(i+1) + " letters", paths: paths})
	}
	return append(scenarios, scenario{name: "all of these", paths: flatten(byLength)}, scenario{name: "a word", paths: words}, scenario{name: "a code", paths: codes},
		scenario{name: "up to three words", paths: several}, scenario{name: "a word with a typo", paths: typos}, scenario{name: "what is nowhere", paths: nothing})
}

// typingRow runs rounds of a scenario against both binaries in turn and prints the medians.
func typingRow(s settings, before, now *server, sc scenario) error {
	asking := func(g *server) func() (load, error) {
		return func() (load, error) { return g.round(g.gets(sc.paths, sc.header), s.clients, s.round) }
	}
	was, is, err := alternate(s.rounds, asking(before), asking(now))
	if err != nil {
		return err
	}
	fmt.Printf("| %s | %s | %s | %.2f | %s | %s |\n", sc.name, tenths(was.perRequest()), tenths(is.perRequest()),
		float64(is.perRequest())/float64(was.perRequest()), milliseconds(was.quantile(0.99)), milliseconds(is.quantile(0.99)))
	return nil
}

func tenths(d time.Duration) string { return fmt.Sprintf("%.1f µs", float64(d)/1e3) }
