package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/terminology/internal/budget"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
)

// bomb is a request that costs much more than what it brings along is large.
type bomb struct {
	name, path, body string
	most             int // steps that it may take; 0 for 2,000,000
}

// posted is the Parameters resource with the given parameters.
func posted(parameters ...string) string {
	return `{"resourceType":"Parameters","parameter":[` + strings.Join(parameters, ",") + `]}`
}

// brings is the parameter for a resource that a request brings along.
func brings(resource string) string { return `{"name":"tx-resource","resource":` + resource + `}` }

// repeat writes a list of n elements, made of their numbers.
func repeat(n int, element func(i int) string) string {
	list := make([]string, n)
	for i := range list {
		list[i] = element(i)
	}
	return strings.Join(list, ",")
}

// validations are n parameters for the same validation.
func validations(n int, parameters string) string {
	return repeat(n, func(int) string { return `{"name":"validation","resource":` + parameters + `}` })
}

// includedTimes is a value set that includes the code system http://x/b n times, with something more each time.
func includedTimes(n int, more string) string {
	return valueSetOf("http://x/bomb", `{"include":[`+repeat(n, func(int) string { return `{"system":"http://x/b"` + more + `}` })+`]}`)
}

// bombs returns requests of some ten kilobytes each.
func bombs() []bomb {
	filter := func(property, op, value string) string {
		return fmt.Sprintf(`,"filter":[{"property":%q,"op":%q,"value":%q}]`, property, op, value)
	}
	system := func(more, concepts string) string {
		return brings(`{"resourceType":"CodeSystem","url":"http://x/b","status":"active","content":"complete"` + more + `,"concept":[` + concepts + `]}`)
	}
	long := system("", `{"code":"a","display":"`+strings.Repeat("a", 20_000)+`"}`)
	flat := system("", repeat(300, func(i int) string { return fmt.Sprintf(`{"code":"c%d"}`, i) }))
	numbered := func(i int) string { return fmt.Sprintf(`{"code":"c%d"}`, i) }
	url := `{"name":"url","valueUri":"http://x/bomb"}`
	codings := func(n int, code string) string {
		return `{"name":"codeableConcept","valueCodeableConcept":{"coding":[` +
			repeat(n, func(int) string { return `{"system":"http://x/b","code":"` + code + `"}` }) + `]}}`
	}
	coding := `{"name":"coding","valueCoding":{"system":"http://x/b","code":"a"}}`
	regex := brings(includedTimes(60, filter("display", "regex", "(.*a){30}b")))
	const expand, validate = "/ValueSet/$expand", "/ValueSet/$validate-code"
	return []bomb{
		{name: "regexes on a long display", path: expand, body: posted(url, long, regex)},
		{name: "regexes on the display of a code", path: validate, body: posted(url, long, regex, coding)},
		{name: "lists of values", path: validate, body: posted(url, long, codings(80, "a"),
			brings(includedTimes(1, filter("display", "in", strings.Repeat("a,", 2500))))), most: 50_000},
		{name: "hierarchies with many edges", path: expand, body: posted(url,
			system(`,"property":[{"code":"parent","uri":"http://hl7.org/fhir/concept-properties#parent","type":"code"}]`, repeat(30, func(i int) string {
				return fmt.Sprintf(`{"code":"c%d","property":[%s]}`, i, repeat(i, func(j int) string { return fmt.Sprintf(`{"code":"parent","valueCode":"c%d"}`, j) }))
			})), brings(includedTimes(100, filter("concept", "is-a", "c0")))), most: 30_000},
		{name: "intersections", path: expand, body: posted(url, flat,
			brings(valueSetOf("http://x/flat", `{"include":[{"system":"http://x/b"}]}`)),
			brings(valueSetOf("http://x/bomb", `{"include":[{"valueSet":[`+repeat(500, func(int) string { return `"http://x/flat"` })+`]}]}`))), most: 100_000},
		{name: "codings and includes", path: validate, body: posted(url, flat, codings(200, "c1"), brings(includedTimes(200, filter("code", "=", "c2")))), most: 100_000},
		{name: "codings and lists", path: validate, body: posted(url, flat, codings(200, "x"),
			brings(valueSetOf("http://x/bomb", `{"include":[{"system":"http://x/b","concept":[`+repeat(300, numbered)+`]}]}`))), most: 20_000},
		{name: "codings and displays", path: "/CodeSystem/$validate-code", body: posted(`{"name":"url","valueUri":"http://x/b"}`, codings(200, "a"),
			system("", `{"code":"a","display":"a","designation":[`+repeat(200, func(i int) string { return fmt.Sprintf(`{"language":"de","value":"%d"}`, i) })+`]}`)), most: 100_000},
		{name: "rules and includes", path: expand, body: posted(url, flat, repeat(200, func(i int) string {
			return fmt.Sprintf(`{"name":"system-version","valueCanonical":"http://x/%d|1"}`, i)
		}), brings(includedTimes(200, `,"concept":[{"code":"c1"}]`))), most: 40_000},
		{name: "a filter of many words", path: expand, body: posted(url, long, `{"name":"filter","valueString":"`+strings.Repeat("aaaab ", 20)+`"}`,
			brings(includedTimes(1, ""))), most: 12_000},
		{name: "targets", path: "/ConceptMap/$translate", body: posted(codings(200, "x"), brings(strings.NewReplacer("http://x/a", "http://x/b").Replace(
			mapOf("map", `{"code":"a","target":[`+repeat(200, numbered)+`]}`, "")))), most: 20_000},
		{name: "classes of Unicode", path: "/ValueSet/$batch-validate-code", body: posted(url, system("", `{"code":"a"}`),
			brings(includedTimes(1, filter("code", "regex", strings.Repeat(`\pL`, 200)))), validations(150, posted(coding)))},
		{name: "codings and rules", path: "/CodeSystem/$validate-code", body: posted(`{"name":"url","valueUri":"http://x/b"}`, flat, codings(200, "c1"), repeat(200, func(i int) string {
			return fmt.Sprintf(`{"name":"system-version","valueUri":"http://x/%d|1"}`, i)
		})), most: 30_000},
		{name: "parameters of all validations", path: "/ValueSet/$batch-validate-code", body: posted(coding, repeat(2, func(i int) string {
			return fmt.Sprintf(`{"name":"x%d","valueString":%q}`, i, strings.Repeat("x", 8000))
		}), validations(150, posted())), most: 100_000},
		{name: "codes with supplements", path: expand, body: posted(url, flat, brings(includedTimes(1, "")), repeat(100, func(i int) string {
			return brings(fmt.Sprintf(`{"resourceType":"CodeSystem","url":"%d","content":"supplement","supplements":"http://x/b"}`, i))
		}), repeat(100, func(i int) string { return fmt.Sprintf(`{"name":"useSupplement","valueCanonical":"%d"}`, i) })), most: 25_000},
		{name: "codes with designations", path: expand, body: posted(url, flat, brings(includedTimes(1, "")), repeat(300, func(int) string {
			return `{"name":"designation","valueString":"a|b"}`
		})), most: 15_000},
		{name: "validations", path: "/ValueSet/$batch-validate-code", body: posted(url, flat, brings(includedTimes(50, filter("display", "regex", "a+"))),
			validations(100, posted(coding))), most: 20_000},
	}
}

// TestBombs sends requests that would be worked on for long: what they cost is seen before it is spent.
func TestBombs(t *testing.T) {
	for _, b := range bombs() {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			base := libraryOf(t, colours)
			base.Definitions().Bounds.Gathered = cmp.Or(b.most, 2_000_000)
			w, _ := call(t, &Handler{Library: base}, http.MethodPost, b.path, b.body)
			if got := w.Body.String(); !strings.Contains(got, `"code":"too-costly"`) {
				t.Errorf("%d bytes: got %d %.300s", len(b.body), w.Code, got)
			}
			if len(b.body) > 30_000 {
				t.Errorf("it takes %d bytes", len(b.body))
			}
		})
	}
}

// countdown is a context that ends when it has been looked at so many times.
type countdown struct {
	context.Context
	left int
}

func (c *countdown) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

// TestBombsOfClientsThatLeave has the clients leave while their requests are worked on, which may cost anything: no
// work goes on. Those who leave first do not even begin it.
func TestBombsOfClientsThatLeave(t *testing.T) {
	for _, b := range bombs() {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			base := libraryOf(t, colours)
			base.Definitions().Bounds.Gathered = math.MaxInt / 2
			for _, left := range []int{0, 1} {
				r := httptest.NewRequest(http.MethodPost, b.path, strings.NewReader(b.body))
				r.Header.Set("Content-Type", "application/fhir+json")
				r.URL.Path = "/fhir/R4" + b.path
				ctx := &countdown{Context: r.Context(), left: left}
				err := operationAt(&Handler{Library: base}, b.path)(httptest.NewRecorder(), r.WithContext(ctx))
				if steps := cmp.Or(b.most, 2_000_000); steps < 2*50_000 && left > 0 {
					continue // over before it is looked at again
				}
				if !errors.Is(err, context.Canceled) {
					t.Errorf("leaving after %d looks: got %v", left, err)
				}
			}
		})
	}
}

// operationAt returns a handler's method for a path.
func operationAt(h *Handler, path string) func(http.ResponseWriter, *http.Request) error {
	return map[string]func(http.ResponseWriter, *http.Request) error{
		"/ValueSet/$expand": h.Expand, "/ValueSet/$validate-code": h.ValidateCode, "/ValueSet/$batch-validate-code": h.BatchValidateCode,
		"/CodeSystem/$validate-code": h.ValidateCodeInSystem, "/ConceptMap/$translate": h.Translate,
	}[path]
}

// TestTurns asks for costly and for other things: only the former need a turn, one at a time, and give it back.
func TestTurns(t *testing.T) {
	full := errors.New("full")
	for _, test := range []struct {
		name, path, body string
		most             int
		refuse           error
		turns, status    int
	}{
		{name: "costly", path: "/ValueSet/$expand", body: bombs()[0].body, turns: 1, status: 422},
		{name: "costly, without room", path: "/ValueSet/$expand", body: bombs()[0].body, refuse: full, turns: 1, status: 503},
		{name: "cheap", path: "/ValueSet/$expand", body: posted(`{"name":"url","valueUri":"http://x/colours/vs"}`, `{"name":"filter","valueString":"re"}`), refuse: full, status: 200},
		{name: "cheap validation", path: "/ValueSet/$validate-code", body: posted(`{"name":"url","valueUri":"http://x/colours/vs"}`,
			`{"name":"coding","valueCoding":{"system":"http://x/colours","code":"red"}}`), refuse: full, status: 200},
		{name: "large body", path: "/ValueSet/$expand", body: posted(`{"name":"url","valueUri":"http://x/colours/vs"}`,
			brings(`{"resourceType":"ValueSet","description":"`+strings.Repeat("x", 1_000_000)+`"}`)), refuse: full, turns: 1, status: 503},
		{name: "large body, and room", path: "/ValueSet/$expand", body: posted(`{"name":"url","valueUri":"http://x/colours/vs"}`,
			brings(`{"resourceType":"ValueSet","description":"`+strings.Repeat("x", 1_000_000)+`"}`)), turns: 1, status: 200},
		{name: "large body of a validation", path: "/ValueSet/$validate-code", body: posted(`{"name":"url","valueUri":"http://x/colours/vs"}`,
			`{"name":"coding","valueCoding":{"system":"http://x/colours","code":"red"}}`,
			brings(`{"resourceType":"ValueSet","description":"`+strings.Repeat("x", 1_000_000)+`"}`)), turns: 1, status: 200},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			turns, held := 0, 0
			l := colourLibrary(t)
			l.Definitions().Bounds.Gathered = 1_300_000
			h := &Handler{Library: l, Turn: func(context.Context) (func(), error) {
				turns++
				if test.refuse != nil {
					return nil, test.refuse
				}
				held++
				return func() { held-- }, nil
			}}
			w := httptest.NewRecorder()
			r := httptest.NewRequest(http.MethodPost, "/fhir/R4"+test.path, strings.NewReader(test.body))
			r.Header.Set("Content-Type", "application/fhir+json")
			err := operationAt(h, test.path)(&writerThatAsks{ResponseWriter: w, ask: func() {
				if held != 0 {
					t.Error("the turn is held while the client reads")
				}
			}}, r)
			status := w.Code
			if e, ok := errors.AsType[*outcome.Error](err); ok {
				status = e.Status
			}
			if status != test.status || turns != test.turns || held != 0 || errors.Is(err, budget.ErrBusy) != (test.status == 503) {
				t.Errorf("got %d, %v; %d turns, %d of them held", status, err, turns, held)
			}
		})
	}
}

// writerThatAsks asks before it takes something.
type writerThatAsks struct {
	http.ResponseWriter
	ask func()
}

func (w *writerThatAsks) Write(b []byte) (int, error) {
	w.ask()
	return w.ResponseWriter.Write(b)
}

// TestManyCodings validates a thousand codings against a hundred includes by hierarchy, each of which has all of them
// below it: what is above a coding is looked at, and not all that is below each include.
func TestManyCodings(t *testing.T) {
	const n, deep = 1000, 100
	concepts := repeat(n, func(i int) string { return fmt.Sprintf(`{"code":"c%d"}`, i) })
	for i := range deep {
		concepts = fmt.Sprintf(`{"code":"p%d","concept":[%s]}`, i, concepts)
	}
	system := `{"resourceType":"CodeSystem","url":"http://x/b","status":"active","content":"complete","concept":[` + concepts + `]}`
	set := valueSetOf("http://x/vs", `{"include":[`+repeat(deep, func(i int) string {
		return fmt.Sprintf(`{"system":"http://x/b","filter":[{"property":"concept","op":"is-a","value":"p%d"}]}`, i)
	})+`]}`)
	body := posted(`{"name":"url","valueUri":"http://x/vs"}`, `{"name":"codeableConcept","valueCodeableConcept":{"coding":[`+
		repeat(n, func(i int) string { return fmt.Sprintf(`{"system":"http://x/b","code":"c%d"}`, i) })+`]}}`)
	w, answer := call(t, &Handler{Library: libraryOf(t, system, set)}, http.MethodPost, "/ValueSet/$validate-code", body)
	if w.Code != http.StatusOK || !strings.Contains(fmt.Sprint(answer), "name:result valueBoolean:true") {
		t.Errorf("got %d %.300s", w.Code, w.Body)
	}
}
