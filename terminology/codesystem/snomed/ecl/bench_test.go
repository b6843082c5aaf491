package ecl

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"
)

// hierarchies of the large edition, with their sizes. Their top concepts are children of the root.
var hierarchies = []struct {
	name string
	size int
}{{"finding", 120_000}, {"procedure", 60_000}, {"body", 45_000}, {"morphology", 6_000}, {"substance", 30_000}, {"organism", 36_000}, {"product", 30_000}, {"other", 23_000}}

const attributeCount = 20

// largeEdition is a synthetic edition of 350,000 concepts. from contains the first concept of each hierarchy.
type largeEdition struct {
	*memoryContent
	from map[string]int
	to   map[string]int
}

var newLargeEdition = sync.OnceValue(func() *largeEdition {
	r := rand.New(rand.NewPCG(7, 8))
	l := &largeEdition{from: make(map[string]int), to: make(map[string]int)}
	m := &model{columns: map[int][]string{2: {"targetComponentId"}}}
	add := func(parents ...int) int {
		i := len(m.concepts)
		m.concepts = append(m.concepts, modelConcept{id: firstID + uint64(i), active: true, Metadata: Metadata{coreModule, 900000000000074008, 20200131}})
		for _, parent := range parents {
			m.isA = append(m.isA, [2]int{i, parent})
		}
		return i
	}
	add()
	for range attributeCount {
		add(0)
	}
	m.concepts[2].id = sameAs
	for _, h := range hierarchies {
		top := add(0)
		l.from[h.name] = top
		for i := range h.size - 1 {
			parents := []int{top + r.IntN(i+1)}
			if second := top + r.IntN(i+1); r.IntN(5) < 2 && second != parents[0] {
				parents = append(parents, second)
			}
			add(parents...)
		}
		l.to[h.name] = top + h.size
	}
	l.addContent(r, m)
	l.memoryContent = newMemoryContent(m)
	return l
})

func (l *largeEdition) pick(r *rand.Rand, name string) int {
	return l.from[name] + r.IntN(l.to[name]-l.from[name])
}

func (l *largeEdition) addContent(r *rand.Rand, m *model) {
	relate := func(name string, groups int, kinds map[int]string) {
		for c := l.from[name]; c < l.to[name]; c++ {
			for group := range 1 + r.IntN(groups) {
				for kind, target := range kinds {
					m.relations = append(m.relations, modelRelation{c, kind, l.pick(r, target), uint16(group + 1)})
				}
			}
		}
	}
	relate("finding", 2, map[int]string{10: "body", 11: "morphology"})
	relate("procedure", 2, map[int]string{12: "body", 13: "other"})
	relate("product", 3, map[int]string{14: "substance"})
	for c := l.from["product"]; c < l.to["product"]; c++ {
		m.values = append(m.values, modelValue{c, 15, 1, fmt.Sprintf("#%d", 5*(1+r.IntN(200)))})
	}
	for c := range m.concepts {
		for range 3 {
			d := modelDescription{concept: c}
			for range 2 + r.IntN(4) {
				d.Term = fmt.Appendf(d.Term, "%s ", word(int(3000*r.Float64()*r.Float64()*r.Float64())))
			}
			d.Active, d.Type, d.Language = true, 900000000000013009, "en"
			m.descriptions = append(m.descriptions, d)
		}
		if r.IntN(10) == 0 {
			m.rows = append(m.rows, modelRow{refset: 3 + r.IntN(5), component: c, active: true})
		}
		if r.IntN(20) == 0 {
			m.rows = append(m.rows, modelRow{refset: 2, component: c, active: true, fields: []string{fmt.Sprint(firstID + r.IntN(len(m.concepts)))}})
		}
	}
}

// word returns a pronounceable word for a number.
func word(i int) string {
	text := ""
	for i += 40; i > 0; i /= 40 {
		text += string("bcdfghklmnprstvz"[i%16]) + string("aeiou"[i%5])
	}
	return text
}

// subtree returns a random concept, most often of the upper part of a hierarchy.
func (l *largeEdition) subtree(r *rand.Rand, name string) string {
	size := float64(l.to[name] - l.from[name])
	return fmt.Sprint(firstID + l.from[name] + int(size*r.Float64()*r.Float64()*r.Float64()*r.Float64()))
}

func (l *largeEdition) top(name string) string { return fmt.Sprint(firstID + l.from[name]) }

// expression returns a random expression with the operators that are common in value sets.
func (l *largeEdition) expression(r *rand.Rand) string {
	clinical := []string{"finding", "procedure", "body", "substance", "organism", "product"}[r.IntN(6)]
	x, y := l.subtree(r, clinical), l.subtree(r, clinical)
	site, shape, substance := l.subtree(r, "body"), l.subtree(r, "morphology"), l.subtree(r, "substance")
	term := word(r.IntN(3000))
	refset := fmt.Sprint(firstID + 3 + r.IntN(5))
	switch n := r.IntN(100); {
	case n < 25:
		return "<< " + x
	case n < 35:
		return []string{"< ", "<! ", ">> ", "> "}[r.IntN(4)] + x
	case n < 45:
		return fmt.Sprintf("< %s : 100010 = << %s", l.top("finding"), site)
	case n < 50:
		return fmt.Sprintf("<< %s : 100011 = << %s", l.subtree(r, "finding"), shape)
	case n < 60:
		return fmt.Sprintf("< %s : { 100010 = << %s, 100011 = << %s }", l.top("finding"), site, shape)
	case n < 68:
		return fmt.Sprintf("<< %s OR << %s OR %s", x, y, l.subtree(r, "finding"))
	case n < 75:
		return fmt.Sprintf("<< %s MINUS << %s", x, y)
	case n < 79:
		return "^ " + refset
	case n < 83:
		return fmt.Sprintf("<< %s AND ^ %s", x, refset)
	case n < 90:
		return fmt.Sprintf("<< %s {{ term = %q }}", x, term)
	case n < 92:
		return fmt.Sprintf("<< %s . 100010", l.subtree(r, "finding"))
	case n < 94:
		return fmt.Sprintf("<< %s : 100014 = << %s, 100015 >= #%d", l.top("product"), substance, 5*r.IntN(200))
	case n < 96:
		return fmt.Sprintf("<< %s : [0..0] 100010 = << %s", l.subtree(r, "finding"), site)
	case n < 98:
		return fmt.Sprintf("<< %s : [2..*] 100014 = << %s", l.subtree(r, "product"), substance)
	case n < 99:
		return fmt.Sprintf("<< %s {{ + HISTORY-MIN }}", x)
	}
	return fmt.Sprintf("<< %s : R 100010 = << %s", l.subtree(r, "body"), l.subtree(r, "finding"))
}

// BenchmarkExpressions evaluates 1,000 different expressions, each once.
func BenchmarkExpressions(b *testing.B) {
	l := newLargeEdition()
	for _, cacheBytes := range []int{0, 16 << 20} {
		b.Run(fmt.Sprintf("cache=%dMB", cacheBytes>>20), func(b *testing.B) {
			r := rand.New(rand.NewPCG(9, 10))
			e := NewEvaluator(l, cacheBytes)
			type result struct {
				time time.Duration
				text string
			}
			for b.Loop() {
				var results []result
				for range 1000 {
					text := l.expression(r)
					start := time.Now()
					x, err := Parse(text)
					if err == nil {
						_, err = e.Evaluate(x, func(int) error { return nil })
					}
					if err != nil {
						b.Fatal(text, err)
					}
					results = append(results, result{time.Since(start), text})
				}
				slices.SortFunc(results, func(a, b result) int { return int(a.time - b.time) })
				b.ReportMetric(float64(results[500].time.Microseconds()), "median-µs")
				b.ReportMetric(float64(results[990].time.Microseconds()), "p99-µs")
				for _, slowest := range results[980:] {
					b.Logf("%s: %s", slowest.time, slowest.text)
				}
			}
		})
	}
}
