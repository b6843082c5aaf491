package ucum

import (
	"maps"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const generated = 100_000

// generator makes expressions.
type generator struct {
	*rand.Rand
	naive           *naive
	units, prefixes []string
}

func newGenerator(t testing.TB) *generator {
	n := newNaive(t)
	return &generator{
		Rand: rand.New(rand.NewPCG(25, 11)), naive: n,
		units: slices.Sorted(maps.Keys(n.defined)), prefixes: slices.Sorted(maps.Keys(n.prefixes)),
	}
}

func (g *generator) one(of []string) string { return of[g.IntN(len(of))] }

func (g *generator) expression() string {
	for {
		s := g.one([]string{"", "", "", "", "/"}) + g.product(0)
		if v, ok := g.naive.expression(s); len(s) <= maxLength && (!ok || g.naive.hasCanonical(v)) {
			return s
		}
	}
}

func (g *generator) product(depth int) string {
	s := g.component(depth)
	for range g.IntN(4) {
		s += g.one([]string{".", "/"}) + g.component(depth)
	}
	return s
}

func (g *generator) component(depth int) string {
	note := g.one([]string{"", "", "", "", "{a}", "{total protein}", "{a.b/c}{d}", "{}"})
	switch r := g.IntN(10); {
	case r == 0:
		return strconv.Itoa(1+g.IntN(1000)) + note
	case r == 1 && note != "":
		return note
	case r <= 2 && depth < 3:
		return "(" + g.product(depth+1) + ")" + note
	}
	symbol := g.one(g.units)
	if g.naive.metric[symbol] && g.IntN(2) == 0 {
		symbol = g.one(g.prefixes) + symbol
	}
	return symbol + g.one([]string{"", "", "", "2", "-1", "3", "-2", "+2", "0", "-12"}) + note
}

// log10Of returns the common logarithm of a number that may be beyond float64.
func log10Of(x *big.Int) float64 {
	m := new(big.Float)
	exponent := new(big.Float).SetInt(x).MantExp(m)
	f, _ := m.Float64()
	return math.Log10(f) + float64(exponent)*math.Log10(2)
}

// Expressions come to what an evaluator that was written apart says.
func TestGenerated(t *testing.T) {
	t.Parallel()
	g := newGenerator(t)
	for range generated {
		s := g.expression()
		want, ok := g.naive.eval(s)
		m, fits := measured(expression([]byte(s)))
		if !ok || !fits {
			t.Fatalf("%s: valid %t, has a value %t, refused %q", s, ok, fits, system{}.Refusal([]byte(s)))
		}
		for symbol, i := range g.naive.axes {
			if m.dimension[symbol] != want.exponents[i] {
				t.Fatalf("%s: %s to the power of %d, want %d", s, symbol, m.dimension[symbol], want.exponents[i])
			}
		}
		if got := log10Of(m.value.Num()) - log10Of(m.value.Denom()); math.Abs(got-want.log) > 1e-9*(1+math.Abs(want.log)) {
			t.Fatalf("%s: 1e%g, want 1e%g", s, got, want.log)
		}
	}
}

// mutate changes a character or three.
func (g *generator) mutate(s string) string {
	for range 1 + g.IntN(3) {
		at := g.IntN(len(s) + 1)
		rest := s[at:]
		if rest != "" && g.IntN(3) > 0 {
			rest = rest[1:]
		}
		s = s[:at] + g.one([]string{"", "(", ")", "{", "}", "[", "]", ".", "/", "-", "+", "0", "7", "m", "k", "*", "'", " ", "\"", "\x00", "\xff", "é", "=", "9999"}) + rest
	}
	return s
}

// What the other evaluator refuses is refused, and nothing else.
func TestMalformed(t *testing.T) {
	t.Parallel()
	g := newGenerator(t)
	for malformed := 0; malformed < generated; {
		s := g.mutate(g.expression())
		_, ok := g.naive.eval(s)
		if !ok {
			malformed++
		}
		if _, found := (system{}).Locate([]byte(s)); found != ok {
			t.Fatalf("%q: found %t, want %t (%s)", s, found, ok, system{}.Refusal([]byte(s)))
		}
		if why := (system{}).Refusal([]byte(s)); (why == "") != ok || len(why) > 2*maxLength {
			t.Fatalf("%q: refused %q", s, why)
		}
	}
}

// What is found has a canonical form, which is a code too and its own canonical form, and everything else.
func FuzzLocate(f *testing.F) {
	for _, code := range []string{"mg/dL{a b}", "/(12.h)", "10*-3/uL", "m[iU]/(L.10^+2)", "dB[10.nV]", "[m/s2/Hz^(1/2)]", "(((m)", "m{é}", "0", "Cel.Cel", "1{c}{d}", "b700"} {
		f.Add(code)
	}
	f.Fuzz(func(t *testing.T, code string) {
		c, ok := system{}.Locate([]byte(code))
		if why := (system{}).Refusal([]byte(code)); (why == "") != ok {
			t.Fatalf("%q: found %t, refused %q", code, ok, why)
		}
		if !ok {
			return
		}
		canonical, err := system{}.FilterValue(propertyCanonical, code)
		again, err2 := system{}.FilterValue(propertyCanonical, canonical)
		if err != nil || err2 != nil || again != canonical || strings.Contains(canonical, " ") {
			t.Errorf("%q: canonical %q, and that of it %q (%v, %v)", code, canonical, again, err, err2)
		}
		system{}.AppendTexts(nil, c)
		system{}.AppendValues(nil, c)
		if _, equal, ok := (system{}).Convert(c, c); ok && !equal {
			t.Errorf("%q is not itself", code)
		}
	})
}
