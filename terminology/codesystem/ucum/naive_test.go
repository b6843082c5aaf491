package ucum

import (
	"bytes"
	"io"
	"maps"
	"math"
	"math/big"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// naiveEvaluator evaluates expressions by splitting strings. It shares only ucum-essence.xml with the tested code.
type naiveEvaluator struct {
	prefixes  map[string]float64
	metric    map[string]bool
	defined   map[string]string // definition by unit: a number followed by a unit; only a number for base units
	evaluated map[string]naiveValue
	axes      map[string]int
}

// naiveValue is a value: the exponents of base and arbitrary units, and the decimal logarithm of the number.
type naiveValue struct {
	exponents [64]int
	log       float64
}

func (v naiveValue) times(o naiveValue, exponent int) naiveValue {
	for i, e := range o.exponents {
		v.exponents[i] += e * exponent
	}
	v.log += o.log * float64(exponent)
	return v
}

var (
	prefixElement = regexp.MustCompile(`(?s)<prefix Code="([^"]+)".*?<value value="([^"]+)"`)
	baseElement   = regexp.MustCompile(`<base-unit Code="([^"]+)"`)
	unitElement   = regexp.MustCompile(`(?s)<unit Code="([^"]+)".*?</unit>`)
	valueElement  = regexp.MustCompile(`<(?:value|function name)[^>]*>`)
	numberOf      = regexp.MustCompile(` value="([^"]+)"`)
	unitOf        = regexp.MustCompile(` Unit="([^"]+)"`)
)

func newNaiveEvaluator(t testing.TB) *naiveEvaluator {
	t.Helper()
	r, err := zstd.NewReader(bytes.NewReader(compressedEssence))
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	n := &naiveEvaluator{prefixes: map[string]float64{}, metric: map[string]bool{}, defined: map[string]string{}, evaluated: map[string]naiveValue{}, axes: map[string]int{}}
	for _, m := range prefixElement.FindAllStringSubmatch(string(data), -1) {
		n.prefixes[m[1]] = log10(m[2])
	}
	for _, m := range baseElement.FindAllStringSubmatch(string(data), -1) {
		n.defined[m[1]], n.metric[m[1]] = "1", true
	}
	for _, m := range unitElement.FindAllStringSubmatch(string(data), -1) {
		n.metric[m[1]] = strings.Contains(m[0], `isMetric="yes"`)
		n.defined[m[1]] = define(m[0])
	}
	return n
}

// define returns the definition in the XML element of a unit. For a special unit, it is the function after the value.
func define(element string) string {
	values := valueElement.FindAllString(element, -1)
	last := values[len(values)-1]
	number, unit := numberOf.FindStringSubmatch(last)[1], unitOf.FindStringSubmatch(last)[1]
	if strings.Contains(element, `isArbitrary="yes"`) && unit == "1" {
		return "1"
	}
	return number + " " + unit
}

func log10(number string) float64 {
	f, err := strconv.ParseFloat(number, 64)
	if err != nil {
		panic(err)
	}
	return math.Log10(f)
}

// eval returns the value of a code. It returns false if the code is invalid.
func (n *naiveEvaluator) eval(s string) (naiveValue, bool) {
	v, ok := n.expression(s)
	return v, ok && n.hasCanonical(v)
}

// hasCanonical reports whether the canonical form of a value is within the limits for codes.
func (n *naiveEvaluator) hasCanonical(v naiveValue) bool {
	var units []string
	for unit, axis := range n.axes {
		switch e := v.exponents[axis]; {
		case e > maxExponent, e < -maxExponent:
			return false
		case e == 1:
			units = append(units, unit)
		case e != 0:
			units = append(units, unit+strconv.Itoa(e))
		}
	}
	return len(strings.Join(units, ".")) <= maxLength
}

// expression returns the value of an expression. It returns false if the expression is invalid.
func (n *naiveEvaluator) expression(s string) (naiveValue, bool) {
	if len(s) > maxLength {
		return naiveValue{}, false
	}
	if strings.HasPrefix(s, "/") { // a leading / applies only to the next factor: an Oersted is 250 /[pi].A/m
		s = "1" + s
	}
	return n.product(s, 0)
}

// product splits a product at the last operator outside all brackets and evaluates both sides.
func (n *naiveEvaluator) product(s string, depth int) (naiveValue, bool) {
	at, open, until := -1, 0, byte(0)
	for i := range len(s) {
		switch c := s[i]; {
		case until != 0:
			if c == until {
				until = 0
			}
		case c == '{':
			until = '}'
		case c == '[':
			until = ']'
		case c == '(':
			open++
		case c == ')':
			open--
		case open == 0 && (c == '.' || c == '/'):
			at = i
		}
	}
	if at < 0 {
		return n.component(s, depth)
	}
	left, leftOK := n.product(s[:at], depth)
	right, rightOK := n.component(s[at+1:], depth)
	if s[at] == '/' {
		return left.times(right, -1), leftOK && rightOK
	}
	return left.times(right, 1), leftOK && rightOK
}

func (n *naiveEvaluator) component(s string, depth int) (naiveValue, bool) {
	annotated := false
	for strings.HasSuffix(s, "}") {
		at := strings.LastIndexByte(s, '{')
		if at < 0 || strings.ContainsFunc(s[at+1:len(s)-1], func(r rune) bool { return r < ' ' || r > '~' || r == '}' }) {
			return naiveValue{}, false
		}
		s, annotated = s[:at], true
	}
	switch {
	case s == "":
		return naiveValue{}, annotated
	case s[0] == '(' && s[len(s)-1] == ')':
		if depth == maxDepth {
			return naiveValue{}, false
		}
		return n.product(s[1:len(s)-1], depth+1)
	case strings.Trim(s, "0123456789") == "":
		return naiveValue{log: log10(s)}, strings.Trim(s, "0") != ""
	}
	return n.power(s)
}

func (n *naiveEvaluator) power(s string) (naiveValue, bool) {
	symbol, exponent := strings.TrimRight(s, "0123456789"), 1
	if digits := s[len(symbol):]; digits != "" {
		signed := symbol
		symbol = strings.TrimSuffix(strings.TrimSuffix(symbol, "-"), "+")
		if len(signed)-len(symbol) > 1 {
			return naiveValue{}, false
		}
		var err error
		if exponent, err = strconv.Atoi(s[len(symbol):]); err != nil || exponent > maxExponent || exponent < -maxExponent {
			return naiveValue{}, false
		}
	}
	v, ok := n.unit(symbol)
	return naiveValue{}.times(v, exponent), ok
}

func (n *naiveEvaluator) unit(symbol string) (naiveValue, bool) {
	if v, ok := n.evaluated[symbol]; ok {
		return v, true
	}
	definition, ok := n.defined[symbol]
	if !ok {
		for p, log := range n.prefixes {
			if rest, ok := strings.CutPrefix(symbol, p); ok && n.metric[rest] {
				v, ok := n.unit(rest)
				v.log += log
				return v, ok
			}
		}
		return naiveValue{}, false
	}
	number, of, derived := strings.Cut(definition, " ")
	var v naiveValue
	if derived {
		v, ok = n.expression(of)
	} else {
		v.exponents[len(n.axes)] = 1
		n.axes[symbol] = len(n.axes)
	}
	v.log += log10(number)
	n.evaluated[symbol] = v
	return v, ok
}

const generated = 100_000

// generator generates random expressions.
type generator struct {
	*rand.Rand
	naive           *naiveEvaluator
	units, prefixes []string
}

func newGenerator(t testing.TB) *generator {
	n := newNaiveEvaluator(t)
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

// log10Of returns the decimal logarithm of a number that may exceed the range of float64.
func log10Of(x *big.Int) float64 {
	m := new(big.Float)
	exponent := new(big.Float).SetInt(x).MantExp(m)
	f, _ := m.Float64()
	return math.Log10(f) + float64(exponent)*math.Log10(2)
}

// TestGenerated checks that random expressions have the value that naiveEvaluator computes.
func TestGenerated(t *testing.T) {
	t.Parallel()
	g := newGenerator(t)
	for range generated {
		s := g.expression()
		want, ok := g.naive.eval(s)
		m, fits := measureOf(parseValid([]byte(s)))
		if !ok || !fits {
			t.Fatalf("%s: valid %t, has a value %t, refused %q", s, ok, fits, system{}.InvalidReason([]byte(s)))
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

// mutate inserts, removes or replaces one to three characters.
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

// TestMalformed checks that random expressions are rejected exactly if naiveEvaluator rejects them.
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
			t.Fatalf("%q: found %t, want %t (%s)", s, found, ok, system{}.InvalidReason([]byte(s)))
		}
		if why := (system{}).InvalidReason([]byte(s)); (why == "") != ok || len(why) > 2*maxLength {
			t.Fatalf("%q: refused %q", s, why)
		}
	}
}

// FuzzLocate checks that each valid code has a name and a canonical form, and that this form is its own canonical form.
func FuzzLocate(f *testing.F) {
	for _, code := range []string{"mg/dL{a b}", "/(12.h)", "10*-3/uL", "m[iU]/(L.10^+2)", "dB[10.nV]", "[m/s2/Hz^(1/2)]", "(((m)", "m{é}", "0", "Cel.Cel", "1{c}{d}", "b700"} {
		f.Add(code)
	}
	f.Fuzz(func(t *testing.T, code string) {
		c, ok := system{}.Locate([]byte(code))
		if why := (system{}).InvalidReason([]byte(code)); (why == "") != ok {
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
