package ucum

import (
	"math/big"
	"os"
	"strings"
	"testing"
)

// The published cases, but for that of an empty expression, which is no code. UCUM has changed the case of names since.
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
				if why := (system{}).Refusal([]byte(code)); (why == "") != (kind == "valid") {
					t.Errorf("%s: want %s, got %q", code, kind, why)
				}
			}
		case "display":
			if got, want := describe(expression([]byte(args[0]))), strings.Join(args[1:], " "); !strings.EqualFold(got, want) {
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

// checkValue compares a product of values, converted, with what is wanted, as far as the digits of that go.
func checkValue(t *testing.T, values, from, to, want string) {
	t.Helper()
	a, _ := measured(expression([]byte(from)))
	b, _ := measured(expression([]byte(to)))
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
