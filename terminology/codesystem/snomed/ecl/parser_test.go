package ecl

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestParseErrors(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"no expression", "  ", `column 3: expected an operator, "^", "*", "(" or a concept identifier, found the end`},
		{"no identifier", "<< abc", `column 4: expected "^", "*", "(" or a concept identifier, found "abc"`},
		{"short identifier", "< 12345", `column 3: expected an identifier of 6 to 18 digits, found "12345"`},
		{"long identifier", "1234567890123456789", `column 1: expected an identifier of 6 to 18 digits, found "1234567890123456789"`},
		{"leading zero", "0123456", `column 1: expected an identifier of 6 to 18 digits, found "0123456"`},
		{"column in characters", "100001 |äöü| x", `column 14: expected "{{", ":", ".", ",", AND, OR, MINUS or the end, found "x"`},
		{"AND after OR", "100001 OR 100002 AND 100003", "column 18: expected parentheses: AND cannot follow OR without them"},
		{"comma after OR", "100001 OR 100002, 100003", "column 17: expected parentheses: AND cannot follow OR without them"},
		{"MINUS twice", "100001 MINUS 100002 MINUS 100003", "column 21: expected parentheses: MINUS cannot follow MINUS without them"},
		{"refinements", "*: 100001 = * OR 100002 = *, 100003 = *", "column 28: expected parentheses: AND cannot follow OR without them"},
		{"no attribute", "100001 : ", `column 10: expected "[", "{", R, an operator, "^", "*", "(" or a concept identifier, found the end`},
		{"no code", "LAB# ", "column 5: expected the code of an alternate identifier, found the end"},
		{"no comparison", "*: 100001", `column 10: expected "|", "{{" or "=" or another comparison operator, found the end`},
		{"order of concepts", "*: 100001 > 100002", "column 13: expected a number after >, such as #5"},
		{"reverse number", "*: R 100001 = #5", "column 15: expected a concept: reverse attributes have no concrete values"},
		{"number", "*: 100001 = #05", "column 14: expected a number without leading zeros after #"},
		{"number with period", "*: 100001 = #5.", `column 15: expected ",", AND, OR or the end, found "."`},
		{"cardinality", "*: [2..1] 100001 = *", "column 5: expected a minimum cardinality that is not greater than the maximum"},
		{"cardinality with leading zero", "*: [01..2] 100001 = *", `column 5: expected an integer of up to 9 digits, found "01..2]"`},
		{"large cardinality", "*: [1..1234567890] 100001 = *", `column 8: expected "*" or an integer of up to 9 digits, found "1234567890]"`},
		{"order of terms", `* {{ term < "a" }}`, `column 11: expected "=" or another comparison operator, found "<"`},
		{"order of modules", "* {{ C moduleId >= 100001 }}", `column 17: expected "=" or another comparison operator, found ">="`},
		{"group in group", "*: { { 100001 = * } }", `column 6: expected "[", R, an operator, "^", "*", "(" or a concept identifier, found "{"`},
		{"parenthesis", "(100001", `column 8: expected "|", "{{", ":", ".", ",", AND, OR, MINUS or ")", found the end`},
		{"term", "100001 |x", `column 10: expected "|" at the end of the term, found the end`},
		{"empty term", "100001 ||", `column 9: expected a term, found "|"`},
		{"slash", "100001 / 100002", `column 8: expected "|", "{{", ":", ".", ",", AND, OR, MINUS or the end, found "/"`},
		{"comment", "100001 /* x", `column 8: comment has no end: expected "*/"`},
		{"escape", `* {{ term = "a\n" }}`, `column 16: expected a character that can be escaped, found "n\""`},
		{"empty search", `* {{ term = " " }}`, `column 13: expected words, or wild:"" for an empty text`},
		{"date", `* {{ C effectiveTime = "20260230" }}`, `column 24: expected a date such as "20260131", found "20260230"`},
		{"dialect", "* {{ dialect = en-zz }}", `column 16: expected the alias of a dialect, such as en-gb, found "en-zz": use dialectId for others`},
		{"concept filter", "* {{ C term = \"x\" }}", `column 8: expected definitionStatusId, definitionStatus, moduleId, effectiveTime, active or another concept filter, found "term"`},
		{"member filter", "< 100001 {{ M active = 1 }}", "column 10: expected a filter for concepts or descriptions: member filters belong directly after ^ and its operand"},
		{"history before filter", "* {{ + HISTORY }} {{ C active = 1 }}", `column 19: expected ":", ".", ",", AND, OR, MINUS or the end, found "{{"`},
		{"depth", strings.Repeat("(", 101) + "*" + strings.Repeat(")", 101), "column 101: expression is nested too deeply: expected at most 200 levels"},
		{"chain", "100001" + strings.Repeat(".100001", 300), "column 1394: expression is nested too deeply: expected at most 200 levels"},
		{"length", strings.Repeat(" ", MaxLength) + "*", "column 262145: expression is longer than 262144 bytes"},
		{"encoding", "* \xff", "column 3: expression is not UTF-8"},
	} {
		t.Run(test.name, func(t *testing.T) {
			x, err := Parse(test.text)
			if err == nil || err.Error() != test.want {
				t.Errorf("got %v, %v", x, err)
			}
		})
	}
}

func TestCanonicalText(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"descendantOrSelfOf 100001 |x| {{term=\"a  b\"}}", `<< 100001 {{ D term = "a b" }}`},
		{"^[ a,b ]100001 {{ m Active = TRUE }}", "^ [ a , b ] 100001 {{ M Active = 1 }}"},
		{`* {{ term <> "a", language NOT = en }}`, `* {{ D term != "a" , language != en }}`},
		{"*:[0..123456789]100001<>#5", "* : [0..123456789] 100001 != #5"},
		{"/**/100001/***/", "100001"},
		{"refsetcontainingany(100001)", "^R ( 100001 )"},
		{"100001:[1 to many]reverseof any not = (100001 or 100002)", "100001 : R * != ( 100001 OR 100002 )"},
		{"*:[0 TO 1]{100001=TRUE,100002<=#-1.50}", "* : [0..1] { 100001 = true AND 100002 <= #-1.5 }"},
		{"* {{ dialect = (en-gb (preferred) en-us), type = (synonym) }} {{ + history }}", "* {{ D dialect = ( en-gb ( prefer ) en-us ) , type = syn }} {{ + HISTORY-MAX }}"},
		{`"LOINC#1-2" OR LOINC#"3 4"`, `LOINC#"1-2" OR LOINC#"3 4"`},
		{`* {{ D id = (1234567 2345678) }}`, "* {{ D id = ( 1234567 2345678 ) }}"},
		{`*:100001=("a\*" "b")`, `* : 100001 = ( "a\*" "b" )`},
	} {
		x, err := Parse(test.text)
		switch {
		case err != nil:
			t.Errorf("%s: %v", test.text, err)
		case !strings.EqualFold(x.String(), test.want):
			t.Errorf("%s: got %s", test.text, x)
		}
	}
}

// TestMalformed parses generated expressions with random changes: each is an error with a column or has a canonical text.
func TestMalformed(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	g := newGenerator(r, newModel(r, 40))
	errorCount := 0
	for range samples() {
		x := g.expression(2)
		text := mutate(r, pick(g, x.brief, x.long))
		if !checkParse(t, text) {
			errorCount++
		}
	}
	t.Logf("%d of %d changed expressions are malformed", errorCount, samples())
}

// checkParse reports whether text is a valid expression, and checks the error or the canonical text.
func checkParse(t *testing.T, text string) bool {
	x, err := Parse(text)
	if err == nil {
		parseTwice(t, x.String())
		return true
	}
	var syntaxError *SyntaxError
	if !errors.As(err, &syntaxError) || syntaxError.Column < 1 || syntaxError.Column > utf8.RuneCountInString(text)+1 {
		t.Fatalf("%q: %v", text, err)
	}
	if !strings.Contains(syntaxError.Message, "expected") && !strings.Contains(syntaxError.Message, "expression is") {
		t.Fatalf("%q: message does not describe what was expected: %v", text, err)
	}
	return false
}

var mutations = []string{"(", ")", "{", "}", "{{", "}}", "[", "]", "<", "!", "^", "|", `"`, "#", "*", ".", ",", "/*", " AND ", " OR ", "=", "R", "1", "x", "ü", "\xff", "\x00", `\`}

// mutate removes, repeats, inserts or swaps parts of text.
func mutate(r *rand.Rand, text string) string {
	for range 1 + r.IntN(2) {
		i := r.IntN(len(text))
		j := min(len(text), i+1+r.IntN(5))
		switch r.IntN(4) {
		case 0:
			text = text[:i] + text[j:] + " "
		case 1:
			text = text[:j] + text[i:]
		case 2:
			text = text[:i] + mutations[r.IntN(len(mutations))] + text[i:]
		default:
			text = text[:i] + mutations[r.IntN(len(mutations))] + text[j:]
		}
	}
	return text
}

// TestParseLongTexts parses texts that would reach the time limit of the test if the parser read parts of them again and again.
func TestParseLongTexts(t *testing.T) {
	for _, text := range []string{
		strings.Repeat("(", MaxLength), "*:" + strings.Repeat("(", MaxLength-2), strings.Repeat("<", MaxLength), strings.Repeat("a", MaxLength),
		"*" + strings.Repeat(" OR *", MaxLength/5-1), "*:" + strings.Repeat("((*)=*) AND", MaxLength/12), "* {{ term = (" + strings.Repeat(`"a"`, MaxLength/3-10),
		strings.Repeat("/**/", MaxLength/4), "*:(" + strings.Repeat("/* ", MaxLength/3-1), "*:(" + strings.Repeat("(|)", MaxLength/3-1), "*:(" + strings.Repeat(`\"`, MaxLength/2-1), "100001" + strings.Repeat("|a|", MaxLength/3-3), "* {{ typeId = (" + strings.Repeat("100001 ", MaxLength/7-3),
	} {
		checkParse(t, text)
	}
}

func FuzzParse(f *testing.F) {
	r := rand.New(rand.NewPCG(5, 6))
	g := newGenerator(r, newModel(r, 40))
	for range 50 {
		x := g.expression(2)
		f.Add(x.brief)
		f.Add(x.long)
	}
	f.Fuzz(func(t *testing.T, text string) { checkParse(t, text) })
}
