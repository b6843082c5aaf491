package ecl

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology/internal/bitset"
)

var slow = flag.Bool("slow", false, "try all samples, not a tenth of them")

func samples() int {
	if *slow {
		return 100_000
	}
	return 10_000
}

func toSet(s bitset.Set) set {
	result := set{}
	s.Each(func(c uint32) { result[int(c)] = true })
	return result
}

// TestGenerated compares the evaluator with the naive evaluator.
func TestGenerated(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	nonEmpty := 0
	for i := 0; i < samples(); {
		m := newModel(r, 60)
		g, e := newGenerator(r, m), NewEvaluator(newMemoryContent(m), 1<<16)
		for range 500 {
			i++
			x := g.expression(2)
			want := x.evaluate()
			if len(want) > 0 {
				nonEmpty++
			}
			brief, long := parseTwice(t, x.brief), parseTwice(t, x.long)
			if tree(brief.root) != tree(long.root) {
				t.Fatalf("%s\n%s\n%s\n%s", x.brief, x.long, tree(brief.root), tree(long.root))
			}
			for range 2 { // the second result is from the cache
				got, err := e.Evaluate(brief, nil)
				if err != nil {
					t.Fatalf("%s: %v", x.brief, err)
				}
				if !equalSets(toSet(got), want) {
					t.Fatalf("%s\ngot  %v\nwant %v", x.brief, toSet(got), want)
				}
			}
		}
	}
	t.Logf("%d of %d results are not empty", nonEmpty, samples())
}

// parseTwice parses an expression and checks that its canonical text has the same syntax tree.
func parseTwice(t *testing.T, text string) *Expression {
	t.Helper()
	x, err := Parse(text)
	if err != nil {
		t.Fatalf("%s\n%v", text, err)
	}
	again, err := Parse(x.String())
	if err != nil || again.String() != x.String() || tree(again.root) != tree(x.root) {
		t.Fatalf("%s\n%s\n%v", text, x, err)
	}
	return x
}

// tree returns a syntax tree as text, without the positions of cacheable expressions.
func tree(n any) string {
	switch n := n.(type) {
	case *cacheable:
		return tree(n.node)
	case *hierarchy:
		return n.operator + "(" + tree(n.operand) + ")"
	case *memberOf:
		text := fmt.Sprint("^", n.containing, n.fields, tree(n.operand))
		for _, criteria := range n.filters {
			text += criteriaTree(criteria)
		}
		return text
	case *filtered:
		return fmt.Sprintf("(%s)%c%s", tree(n.operand), n.kind, criteriaTree(n.criteria))
	case *history:
		return fmt.Sprint("(", tree(n.operand), ")+", n.profile, tree(n.subset))
	case *compound:
		return n.operator + trees(n.operands)
	case *dotted:
		return "(" + tree(n.operand) + ")." + tree(n.attribute)
	case *refined:
		return "(" + tree(n.operand) + "):" + tree(n.refinement)
	case *refinements:
		return n.operator + trees(n.parts)
	case *group:
		return fmt.Sprint(n.cardinality, "{", tree(n.attributes), "}")
	case *attribute:
		return fmt.Sprint("[", n.cardinality, n.reverse, tree(n.name), n.operator, tree(n.value), n.concrete, "]")
	}
	return fmt.Sprintf("%#v", n)
}

func trees[T any](list []T) string {
	parts := make([]string, len(list))
	for i, n := range list {
		parts[i] = tree(n)
	}
	return "(" + strings.Join(parts, ",") + ")"
}

func criteriaTree(list []criterion) string {
	text := "{"
	for _, c := range list {
		text += fmt.Sprintf("%s%s%s%q%q", c.field, c.operator, tree(c.values), c.terms, c.words)
		for _, d := range c.dialects {
			text += fmt.Sprint(tree(d.refsets), d.acceptability)
		}
	}
	return text + "}"
}

func equalSets(a, b set) bool {
	if len(a) != len(b) {
		return false
	}
	for c := range a {
		if !b[c] {
			return false
		}
	}
	return true
}

// TestConcurrentEvaluation evaluates the same expressions in several goroutines with a cache that evicts most results.
func TestConcurrentEvaluation(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	m := newModel(r, 60)
	g, e := newGenerator(r, m), NewEvaluator(newMemoryContent(m), 2000)
	var expressions []*Expression
	var want []set
	for range 200 {
		x := g.expression(2)
		expressions, want = append(expressions, parseTwice(t, x.brief)), append(want, x.evaluate())
	}
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for i, x := range expressions {
				if got, err := e.Evaluate(x, nil); err != nil || !equalSets(toSet(got), want[i]) {
					t.Errorf("%s: got %v, want %v, %v", x, toSet(got), want[i], err)
				}
			}
		})
	}
	group.Wait()
}
