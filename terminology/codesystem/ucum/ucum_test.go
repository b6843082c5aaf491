package ucum

import (
	"fmt"
	"math/big"
	"os"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology/codesystem"
)

func TestRefusal(t *testing.T) {
	for code, want := range map[string]string{
		"": "unexpected end at character 1", "mg/": "unexpected end at character 4", "mg/dL)": "unexpected ')' at character 6",
		"12h": "unexpected 'h' at character 3", "m²": "unexpected '²' at character 2", "m2-3": "unexpected '-' at character 3", "m//s": "unexpected '/' at character 3",
		"{µ}": "unexpected 'µ' at character 2", "m\x00": `unexpected '\x00' at character 2`, "(/m)": "unexpected '/' at character 2", "(m)2": "unexpected '2' at character 4",
		"m+": "unexpected end at character 3", "{a{b}}": "unexpected '{' at character 3", "{a}m": "unexpected 'm' at character 4", "mg dL": "unexpected ' ' at character 3",
		"mg/kgg": `the unit 'kgg' is unknown at character 4`, "kmin": `the unit 'kmin' is unknown at character 1`, "MIN": `the unit 'MIN' is unknown at character 1`,
		"kkg": `the unit 'kkg' is unknown at character 1`, "m^2": `the unit 'm^' is unknown at character 1`, "1.[foo]": `the unit '[foo]' is unknown at character 3`,
		"(m": "unclosed '(' at character 1", "m{a": "unclosed '{' at character 2", "m[iU": "unclosed '[' at character 2",
		"00": "the number at character 1 is not positive", "m/0": "the number at character 3 is not positive",
		"m999": "", "m-1000": "the exponent at character 2 exceeds 999", "b499": "", "b-500": "the exponent of m in the canonical form exceeds 999", "m999.m999/m999": "", "m" + strings.Repeat("9", 250): "the exponent at character 2 exceeds 999",
		strings.Repeat("(", 16) + "m" + strings.Repeat(")", 16): "", strings.Repeat("(", 17): "more than 16 nested parentheses at character 17",
		strings.Repeat("(m).", 20) + "m":      "",
		"m{" + strings.Repeat("a", 253) + "}": "", "m{" + strings.Repeat("a", 254) + "}": "the expression is longer than 256 bytes",
		"kg": "", "{a}{b}": "", "U/(10.g){feces}": "", "/[pi]": "",
	} {
		if want != "" {
			want = "Error processing unit '" + code + "': " + strings.ToUpper(want[:1]) + want[1:]
		}
		if got := (system{}).InvalidReason([]byte(code)); got != want {
			t.Errorf("%.50q: got %q, want %q", code, got, want)
		}
		if _, found := (system{}).Locate([]byte(code)); found != (want == "") {
			t.Errorf("%.50q: found %t", code, found)
		}
	}
}

// describeAll returns everything that the system reports about a code.
func describeAll(code string) string {
	c, _ := system{}.Locate([]byte(code))
	var b strings.Builder
	for _, text := range (system{}).AppendTexts(nil, c) {
		fmt.Fprintf(&b, "%s %t | ", text.Value, text.IsDisplay)
	}
	for _, v := range (system{}).AppendValues(nil, c) {
		fmt.Fprintf(&b, "%s %s %s ", v.Property.Code, v.Member, v.Text)
	}
	return b.String()
}

func TestConcepts(t *testing.T) {
	for _, want := range []string{
		"mg/dL{a b} true | (milligram) / (deciliter) * 1 false | canonical valueCode g.m-3 ",
		"kg true | (kilogram) false | canonical valueCode g property valueString mass ",
		"mL true | (milliliter) false | canonical valueCode m3 ",
		"L/(min.m2) true | (liter) / ((minute) * (meter ^ 2)) false | canonical valueCode m.s-1 ",
		"/min true | / (minute) false | canonical valueCode s-1 ",
		"10*9/L true | (the number ten for arbitrary powers ^ 9) / (liter) false | canonical valueCode m-3 ",
		"k[IU]/mL true | (kilointernational unit) / (milliliter) false | canonical valueCode [iU].m-3 ",
		"[iU] true | (international unit) false | canonical valueCode [iU] ",
		"[degF] true | (degree Fahrenheit) false | canonical valueCode K property valueString temperature ",
		"Ohm true | (ohm) false | canonical valueCode C-2.g.m2.s-1 ",
		"{score} true | 1 false | canonical valueCode 1 ",
	} {
		code, _, _ := strings.Cut(want, " true")
		if got := describeAll(code); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// TestLocateCopies checks that a concept stays unchanged if the buffer that contained the code is reused.
func TestLocateCopies(t *testing.T) {
	code := []byte("mg")
	c, _ := system{}.Locate(code)
	code[0] = 'k'
	if string(c.Code) != "mg" {
		t.Errorf("got %s", c.Code)
	}
}

// TestFilters checks that filters on canonical and comparable have units as values, and filters on property have quantities.
func TestFilters(t *testing.T) {
	for _, test := range []struct {
		property      int
		value, want   string
		holds, failed string
	}{
		{propertyCanonical, "g", "g", "kg", "mL"},
		{propertyCanonical, "kg", "g", "[lb_av]", "g/L"},
		{propertyComparable, "mg/dL", "g.m-3", "kg/m3", "mmol/L"},
		{propertyComparable, "%", "1", "mol", "[iU]"},
		{propertyComparable, "[IU]", "[iU]", "m[iU]", "[USP'U]"},
		{propertyComparable, "Cel", "K", "[degF]", "J"},
		{propertyProperty, "length", "length", "[mi_i]", "m2"},
	} {
		value, err := system{}.FilterValue(test.property, test.value)
		if err != nil || value != test.want {
			t.Errorf("%s: got %q, %v", test.value, value, err)
		}
		for _, code := range []string{test.holds, test.failed} {
			holds := false
			system{}.Values(codesystem.Concept{Code: []byte(code)}, test.property, func(text []byte) bool { holds = string(text) == value; return true })
			if holds != (code == test.holds) {
				t.Errorf("%s %s: holds %t for %s", properties[test.property].Code, test.value, holds, code)
			}
		}
	}
	mL := codesystem.Concept{Code: []byte("mL")}
	if got := (system{}).Explain(mL, propertyCanonical, "=", "kg"); got != "Code mL has canonical form m3, not g as required" {
		t.Errorf("got %s", got)
	}
	for _, op := range []string{"in", "regex"} {
		if got := (system{}).Explain(mL, propertyCanonical, op, "kg"); got != "" {
			t.Errorf("%s: got %s", op, got)
		}
	}
	if _, err := (system{}).FilterValue(propertyCanonical, "mg/"); err == nil {
		t.Error("mg/ is not a unit")
	}
	const measured = "not the quantity of a base unit; those are electric charge, length, luminous intensity, mass, plane angle, temperature, time"
	if _, err := (system{}).FilterValue(propertyProperty, "Length"); err == nil || err.Error() != measured {
		t.Errorf("Length: got %v", err)
	}
}

func TestConvert(t *testing.T) {
	for _, test := range []struct{ from, to, factor, outcome string }{
		{"mg/dL", "g/L", "0.01", "ok"}, {"g/L", "mg/dL", "100", "ok"}, {"mL", "cm3", "1", "equal"}, {"mg{a}", "mg", "1", "equal"},
		{"mmol/L", "mol/m3", "1", "equal"}, {"[mi_us]", "m", "1609.34721869443739", "ok"}, {"deg", "'", "60", "ok"}, {"a", "s", "31557600", "ok"},
		{"[IU]", "[iU]", "1", "equal"}, {"k[IU]/mL", "[iU]/uL", "1", "equal"}, {"[iU]", "U", "", ""}, {"[iU]", "[USP'U]", "", ""}, {"[iU]", "1", "", ""}, {"g", "m", "", ""},
		{"[degF]", "Cel", "", "ok"}, {"Cel", "K", "", "ok"}, {"mCel", "Cel", "0.001", "ok"}, {"dB", "B{x}", "0.1", "ok"}, {"(Cel)", "Cel", "1", "equal"},
		{"[degR]", "K", "0.555555555555555556", "ok"}, {"[p'diop]", "deg", "", "ok"}, {"[pH]", "mol/L", "", "ok"},
		{"Cel/min", "K/min", "", ""}, {"Cel/min", "Cel/min", "", ""}, {"2.Cel", "Cel", "", ""}, {"Cel2", "K2", "", ""}, {"Cel.Cel", "K2", "", ""}, {"Cel2/Cel", "Cel", "", ""}, {"/Cel", "K-1", "", ""}, {"(Cel.m)/m", "K", "", ""},
		{"meq/L", "mmol/L", "", "ok"}, {"osm/kg", "mol/kg", "", "ok"}, {"meq/L", "ueq/mL", "1", "equal"}, {"(meq)/(L)", "eq/L", "0.001", "ok"}, {"L/eq", "L/mol", "", "ok"}, {"eq.m/eq", "m", "1", "equal"},
		{"10*999", "1", "1e+999", "ok"}, {"10*-999", "1", "1e-999", "ok"}, {"10*999.10*999.10*999", "1", "", ""}, {"1", "[h]999", "", ""}, {"no", "m", "", ""}, {"m", "no", "", ""},
	} {
		factor, equal, ok := system{}.Convert(codesystem.Concept{Code: []byte(test.from)}, codesystem.Concept{Code: []byte(test.to)})
		if factor != test.factor || ok != (test.outcome != "") || equal != (test.outcome == "equal") {
			t.Errorf("%s in %s: got %q, equal %t, %t; want %q %s", test.from, test.to, factor, equal, ok, test.factor, test.outcome)
		}
	}
}

// TestEssence checks that all data is read and that no symbol is ambiguous.
func TestEssence(t *testing.T) {
	e := loadEssence()
	if len(e.units) != 312 || len(e.prefixes) != 24 {
		t.Errorf("%d units, %d prefixes", len(e.units), len(e.prefixes))
	}
	for code, u := range e.units {
		if len(u.Names) == 0 || u.Property == "" || u.measure == nil {
			t.Errorf("%s lacks something", code)
		}
		if p, of := e.findPrefixed(code); p != nil {
			t.Errorf("%s is %s with a prefix, too", code, of.Code)
		}
	}
	if _, err := readEssence([]byte("no zstd")); err == nil {
		t.Error("want an error")
	}
}

func BenchmarkLocate(b *testing.B) {
	codes := []string{"mg/dL", "mmol/L", "10*9/L", "mL/min/(173.10*-2.m2)", "{copies}/mL", "m[iU]/L", "kg/m2", "mm[Hg]", "mg/", "mcg/mL"}
	for i := range b.N {
		system{}.Locate([]byte(codes[i%len(codes)]))
	}
}

// TestFunctional runs UCUM's published tests, except for the empty expression. UCUM has changed the case of names since.
func TestFunctional(t *testing.T) {
	data, err := os.ReadFile("testdata/functional.txt")
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	for line := range strings.Lines(string(data)) {
		kind, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		args := strings.Fields(rest)
		ran += len(args)
		switch kind {
		case "valid", "invalid":
			for _, code := range args {
				if why := (system{}).InvalidReason([]byte(code)); (why == "") != (kind == "valid") {
					t.Errorf("%s: want %s, got %q", code, kind, why)
				}
			}
		case "display":
			if got, want := describe(parseValid([]byte(args[0]))), strings.Join(args[1:], " "); !strings.EqualFold(got, want) {
				t.Errorf("%s: got %s, want %s", args[0], got, want)
			}
		case "convert":
			checkValue(t, args[0], args[1], args[2], args[3])
		case "multiply":
			checkValue(t, args[0]+"*"+args[2], args[1]+"."+args[3], args[5], args[4])
		}
	}
	if ran < 400 {
		t.Errorf("only %d fields", ran)
	}
}

// checkValue converts a product of values and compares it with want, to the precision of want.
func checkValue(t *testing.T, values, from, to, want string) {
	t.Helper()
	a, _ := measureOf(parseValid([]byte(from)))
	b, _ := measureOf(parseValid([]byte(to)))
	got := new(big.Rat).Quo(&a.value, &b.value)
	for v := range strings.SplitSeq(values, "*") {
		x, _ := new(big.Rat).SetString(v)
		got.Mul(got, x)
	}
	mantissa, _, _ := strings.Cut(want, "e")
	n := len(strings.TrimLeft(strings.ReplaceAll(mantissa, ".", ""), "0"))
	exact, _ := new(big.Rat).SetString(want)
	if g, w := rounded(got, n), rounded(exact, n); g != w || a.dimension.String() != b.dimension.String() {
		t.Errorf("%s %s: got %s %s, want %s %s", values, from, g, a.dimension, w, to)
	}
}

func rounded(r *big.Rat, significant int) string {
	return new(big.Float).SetPrec(512).SetRat(r).Text('e', significant-1)
}
