package weights

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// read returns the weights in the given files.
func read(t *testing.T, files ...string) (*Weights, error) {
	t.Helper()
	w := new(Weights)
	for _, file := range files {
		if err := w.Read(t.Context(), strings.NewReader(file)); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// String formats all weights for failure messages.
func (w *Weights) String() string {
	var list []string
	for url, table := range w.All() {
		for code, weight := range table.All() {
			list = append(list, fmt.Sprintf("%s#%s=%v", url, code, weight))
		}
	}
	return strings.Join(list, " ")
}

func TestRead(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		files []string
		want  string
	}{
		{"nothing", []string{"", "# nothing\n\n"}, ""},
		{"plain", []string{"#! http://x/cs\nA,3\n\n# more\n B , 4.5 \nC,0"}, "http://x/cs#A=3 http://x/cs#B=4.5 http://x/cs#C=0"},
		{"tabs", []string{"#! http://x/cs\nA\t3\nB,1\t2\n"}, "http://x/cs#A=3 http://x/cs#B,1=2"},
		{"semicolons, as a spreadsheet writes them", []string{"\ufeff#! http://x/cs\r\nCode;Count\r\nA;3\r\n"}, "http://x/cs#A=3"},
		{"quoted", []string{"#! http://x/cs\n\"code\",\"count\"\n\"A,\"\"1\"\"\",3\n"}, `http://x/cs#A,"1"=3`},
		{"other columns", []string{"#! http://x/cs\nCOUNT,display,code\n3,\"Type 2; diabetes, mellitus\",A\n4,,B\n"}, "http://x/cs#A=3 http://x/cs#B=4"},
		{"a column with the system", []string{"system,code,count\nhttp://x/a,1,2\nhttp://x/b,1,3\n"}, "http://x/a#1=2 http://x/b#1=3"},
		{"the line goes before the column", []string{"#! http://x/vs\nsystem,code,count\nhttp://x/a,1,2\n"}, "http://x/vs#1=2"},
		{"two in a file", []string{"#! http://x/a\n1,2\n#!http://x/b\ncount\tcode\n3\t1\n"}, "http://x/a#1=2 http://x/b#1=3"},
		{"they add up", []string{"#! http://x/a\n1,2\n1,5\n", "#! http://x/a\n1,2\n"}, "http://x/a#1=9"},
		{"a code that is called count", []string{"#! http://x/a\ncount,2\ncode,5\n"}, "http://x/a#code=5 http://x/a#count=2"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w, err := read(t, test.files...)
			if err != nil {
				t.Fatal(err)
			}
			if got := w.String(); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestReadRefuses(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", maxLineLength)
	for _, test := range []struct{ name, file, want string }{
		{"no url", "A,3\n", "line 1: no code system or value set specified"},
		{"an empty system", "system,code,count\n,A,3\n", "line 2: no code system or value set specified"},
		{"not a url", "#! icd\nA,3\n", `line 1: "icd" is not`},
		{"a url with a version", "#! http://x/cs|1\nA,3\n", "line 1: "},
		{"one column", "#! http://x/cs\nA,3\nA\n", "line 3: too few columns"},
		{"columns without names", "#! http://x/cs\nA,Asthma,3\n", "line 2: more than two columns"},
		{"a header with other names", "#! http://x/cs\nKode,Anzahl\nA,3\n", `line 2: the count of "Kode" is "Anzahl"`},
		{"too few", "#! http://x/cs\na,code,count\nA,3\n", "line 3: too few columns"},
		{"no code", "#! http://x/cs\n,3\n", "line 2: no code"},
		{"a count that is hidden", "#! http://x/cs\nA,<5\n", `line 2: the count of "A" is "<5"`},
		{"a negative one", "#! http://x/cs\nA,-1\n", "line 2: the count"},
		{"not a number", "#! http://x/cs\nA,NaN\n", "line 2: the count"},
		{"without end", "#! http://x/cs\nA,Inf\n", "line 2: the count"},
		{"a decimal comma", "#! http://x/cs\nA;3,5\n", "line 2: the count"},
		{"an open quote", "#! http://x/cs\n\"A,3\n", "line 2: "},
		{"a long line", "#! http://x/cs\nA,1\n" + long + ",3\n", "line 3: "},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if _, err := read(t, test.file); err == nil || !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("got %v, want %s…", err, test.want)
			}
		})
	}
}

// TestReadEnds checks that reading stops when the context is canceled.
func TestReadEnds(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := new(Weights).Read(ctx, strings.NewReader("#! http://x/cs\n")); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestTooMany(t *testing.T) {
	t.Parallel()
	w := &Weights{rows: maxCodes}
	if err := w.Read(t.Context(), strings.NewReader("#! http://x/cs\nA,3\n")); !errors.Is(err, errTooManyCodes) {
		t.Errorf("got %v", err)
	}
}

// TestNone checks nil and empty weights.
func TestNone(t *testing.T) {
	t.Parallel()
	var none *Weights
	table := none.TableFor("http://x/cs")
	if len(table) != 0 || table.Weight([]byte("A")) != 0 || none.String() != "" {
		t.Errorf("got %v", none)
	}
	for range table.All() {
		t.Error("a weight in no table")
	}
	w, err := read(t, "#! http://x/cs\nA,3\nB,2\n")
	if err != nil {
		t.Fatal(err)
	}
	if table = w.TableFor("http://x/cs"); len(table) != 2 || table.Weight([]byte("A")) != 3 || table.Weight([]byte("C")) != 0 {
		t.Errorf("got %v", w)
	}
}
