// Command ablation removes one part of the search at a time, and prints the loss over the lists of queries in points: the loss
// of the mean reciprocal rank (over all lists, and in the lists with the largest and the smallest loss), and of hits in the
// first three (in the list with the largest loss). It takes about an hour. From e2e:
//
//	go run ./searchquality/ablation searchquality/testdata/*.tsv
//
// parts.txt contains the parts. Nothing in the working tree changes.
package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// folder contains the source code of the search.
const folder = "../terminology/textindex/"

//go:embed parts.txt
var parts string

// part is a part of the source code with a replacement that disables it.
type part struct{ name, file, old, new string }

func readParts(text string) (list []part) {
	for _, block := range strings.Split(text, "\n@ ")[1:] {
		lines := strings.Split(strings.TrimSpace(block), "\n")
		p := part{name: lines[0], file: lines[1]}
		for _, line := range lines[2:] {
			if old, ok := strings.CutPrefix(line, "- "); ok {
				p.old += "\n" + old
			} else {
				p.new += "\n" + strings.TrimPrefix(line, "+ ")
			}
		}
		p.old, p.new = strings.TrimPrefix(p.old, "\n"), strings.TrimPrefix(p.new, "\n")
		list = append(list, p)
	}
	return list
}

// without returns the code with the part replaced. It returns an error unless the code contains the part exactly once.
func (p part) without(code string) (string, error) {
	if n := strings.Count(code, p.old); n != 1 {
		return "", fmt.Errorf("%s: %s has %q %d times", p.name, p.file, p.old, n)
	}
	return strings.Replace(code, p.old, p.new, 1), nil
}

func main() {
	log.SetFlags(0)
	lists := os.Args[1:]
	with, err := part{}.measure(lists)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("| without | all | most | least | three, most |\n|---|--:|--:|--:|--:|")
	for _, p := range readParts(parts) {
		without, err := p.measure(lists)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("|", p.name, compare(with, without))
	}
}

type sums struct{ queries, three, mrr float64 }

// measure runs the lists without the part. If p is zero, it runs them with all parts.
func (p part) measure(lists []string) (all []sums, err error) {
	dir, err := os.MkdirTemp("", "ablation")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	overlay, changed := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "changed.go")
	replace := map[string]string{}
	if p.file != "" {
		name, _ := filepath.Abs(folder + p.file)
		code, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		text, err := p.without(string(code))
		if err != nil {
			return nil, err
		}
		replace[name] = changed
		if err := os.WriteFile(changed, []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	overlayJSON, _ := json.Marshal(map[string]any{"Replace": replace})
	if err := os.WriteFile(overlay, overlayJSON, 0o600); err != nil {
		return nil, err
	}
	run := exec.Command("go", append([]string{"run", "-overlay", overlay, "./searchquality", "-sums", "-synonyms", "english"}, lists...)...)
	run.Stderr = os.Stderr
	printed, err := run.Output()
	return sumsIn(string(printed)), err
}

var total = regexp.MustCompile(`(?m)^ +all +(\d+) +\d+ +\d+% +(\d+) +\d+% +\d+ +\d+% +([\d.]+)`)

func sumsIn(printed string) (all []sums) {
	for _, m := range total.FindAllStringSubmatch(printed, -1) {
		var n [3]float64
		for i := range n {
			n[i], _ = strconv.ParseFloat(m[i+1], 64)
		}
		all = append(all, sums{n[0], n[1], n[2]})
	}
	return all
}

// compare returns the table columns with the losses.
func compare(with, without []sums) string {
	queries, lost, largest, smallest, three := 0.0, 0.0, 0.0, 0.0, 0.0
	for i, s := range with {
		mrr := 100 * (s.mrr - without[i].mrr)
		queries, lost = queries+s.queries, lost+s.queries*mrr
		largest, smallest = max(largest, mrr), min(smallest, mrr)
		three = max(three, 100*(s.three-without[i].three)/s.queries)
	}
	return fmt.Sprintf("| %.1f | %.1f | %.1f | %.1f |", lost/queries, largest, smallest, three)
}
