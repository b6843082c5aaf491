package standard_test

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

	"github.com/caddy-fhir/caddy-fhir/terminology/api"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/budget"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest"
	"github.com/caddy-fhir/caddy-fhir/terminology/terminologytest/fixture"
)

// bomb is a request that costs far more than its size suggests.
type bomb struct {
	name, path, body string
	maxSteps         int // maximum number of budget steps; 0 means 2,000,000
}

// validations returns n parameters that each contain the same validation.
func validations(n int, parameters string) string {
	return fixture.Repeat(n, func(int) string { return `{"name":"validation","resource":` + parameters + `}` })
}

// includedTimes returns a value set that includes http://x/b n times, each time with the additional members in more.
func includedTimes(n int, more string) string {
	return fixture.ValueSet("http://x/bomb", `{"include":[`+fixture.Repeat(n, func(int) string { return `{"system":"http://x/b"` + more + `}` })+`]}`)
}

// needs skips the test if this build lacks the operation.
func (b *bomb) needs(t *testing.T) {
	t.Helper()
	terminologytest.RequireFeatures(t, b.path)
	if strings.Contains(b.path, "batch") {
		terminologytest.RequireFeatures(t, "/ValueSet/$validate-code")
	}
}

// bombs returns requests of about ten kilobytes each.
func bombs() []bomb {
	filter := func(property, op, value string) string {
		return fmt.Sprintf(`,"filter":[{"property":%q,"op":%q,"value":%q}]`, property, op, value)
	}
	system := func(more, concepts string) string {
		return fixture.TxResource(`{"resourceType":"CodeSystem","url":"http://x/b","status":"active","content":"complete"` + more + `,"concept":[` + concepts + `]}`)
	}
	long := system("", `{"code":"a","display":"`+strings.Repeat("a", 20_000)+`"}`)
	flat := system("", fixture.Repeat(300, func(i int) string { return fmt.Sprintf(`{"code":"c%d"}`, i) }))
	numbered := func(i int) string { return fmt.Sprintf(`{"code":"c%d"}`, i) }
	url := `{"name":"url","valueUri":"http://x/bomb"}`
	codings := func(n int, code string) string {
		return `{"name":"codeableConcept","valueCodeableConcept":{"coding":[` +
			fixture.Repeat(n, func(int) string { return `{"system":"http://x/b","code":"` + code + `"}` }) + `]}}`
	}
	coding := `{"name":"coding","valueCoding":{"system":"http://x/b","code":"a"}}`
	regex := fixture.TxResource(includedTimes(60, filter("display", "regex", "(.*a){30}b")))
	const expand, validate = "/ValueSet/$expand", "/ValueSet/$validate-code"
	return []bomb{
		{name: "regexes on a long display", path: expand, body: fixture.ParametersOf(url, long, regex)},
		{name: "regexes on the display of a code", path: validate, body: fixture.ParametersOf(url, long, regex, coding)},
		{name: "lists of values", path: validate, body: fixture.ParametersOf(url, long, codings(80, "a"),
			fixture.TxResource(includedTimes(1, filter("display", "in", strings.Repeat("a,", 2500))))), maxSteps: 50_000},
		{name: "hierarchies with many edges", path: expand, body: fixture.ParametersOf(url,
			system(`,"property":[{"code":"parent","uri":"http://hl7.org/fhir/concept-properties#parent","type":"code"}]`, fixture.Repeat(30, func(i int) string {
				return fmt.Sprintf(`{"code":"c%d","property":[%s]}`, i, fixture.Repeat(i, func(j int) string { return fmt.Sprintf(`{"code":"parent","valueCode":"c%d"}`, j) }))
			})), fixture.TxResource(includedTimes(100, filter("concept", "is-a", "c0")))), maxSteps: 30_000},
		{name: "intersections", path: expand, body: fixture.ParametersOf(url, flat,
			fixture.TxResource(fixture.ValueSet("http://x/flat", `{"include":[{"system":"http://x/b"}]}`)),
			fixture.TxResource(fixture.ValueSet("http://x/bomb", `{"include":[{"valueSet":[`+fixture.Repeat(500, func(int) string { return `"http://x/flat"` })+`]}]}`))), maxSteps: 100_000},
		{name: "codings and includes", path: validate, body: fixture.ParametersOf(url, flat, codings(200, "c1"), fixture.TxResource(includedTimes(200, filter("code", "=", "c2")))), maxSteps: 100_000},
		{name: "codings and lists", path: validate, body: fixture.ParametersOf(url, flat, codings(200, "x"),
			fixture.TxResource(fixture.ValueSet("http://x/bomb", `{"include":[{"system":"http://x/b","concept":[`+fixture.Repeat(300, numbered)+`]}]}`))), maxSteps: 20_000},
		{name: "codings and displays", path: "/CodeSystem/$validate-code", body: fixture.ParametersOf(`{"name":"url","valueUri":"http://x/b"}`, codings(200, "a"),
			system("", `{"code":"a","display":"a","designation":[`+fixture.Repeat(200, func(i int) string { return fmt.Sprintf(`{"language":"de","value":"%d"}`, i) })+`]}`)), maxSteps: 100_000},
		{name: "rules and includes", path: expand, body: fixture.ParametersOf(url, flat, fixture.Repeat(200, func(i int) string {
			return fmt.Sprintf(`{"name":"system-version","valueCanonical":"http://x/%d|1"}`, i)
		}), fixture.TxResource(includedTimes(200, `,"concept":[{"code":"c1"}]`))), maxSteps: 40_000},
		{name: "a filter of many words", path: expand, body: fixture.ParametersOf(url, long, `{"name":"filter","valueString":"`+strings.Repeat("aaaab ", 20)+`"}`,
			fixture.TxResource(includedTimes(1, ""))), maxSteps: 12_000},
		{name: "targets", path: "/ConceptMap/$translate", body: fixture.ParametersOf(codings(200, "x"), fixture.TxResource(strings.NewReplacer("http://x/a", "http://x/b").Replace(
			fixture.ConceptMap("map", `{"code":"a","target":[`+fixture.Repeat(200, numbered)+`]}`, "")))), maxSteps: 20_000},
		{name: "classes of Unicode", path: "/ValueSet/$batch-validate-code", body: fixture.ParametersOf(url, system("", `{"code":"a"}`),
			fixture.TxResource(includedTimes(1, filter("code", "regex", strings.Repeat(`\pL`, 200)))), validations(150, fixture.ParametersOf(coding)))},
		{name: "codings and rules", path: "/CodeSystem/$validate-code", body: fixture.ParametersOf(`{"name":"url","valueUri":"http://x/b"}`, flat, codings(200, "c1"), fixture.Repeat(200, func(i int) string {
			return fmt.Sprintf(`{"name":"system-version","valueUri":"http://x/%d|1"}`, i)
		})), maxSteps: 30_000},
		{name: "parameters of all validations", path: "/ValueSet/$batch-validate-code", body: fixture.ParametersOf(coding, fixture.Repeat(2, func(i int) string {
			return fmt.Sprintf(`{"name":"x%d","valueString":%q}`, i, strings.Repeat("x", 8000))
		}), validations(150, fixture.ParametersOf())), maxSteps: 100_000},
		{name: "codes with supplements", path: expand, body: fixture.ParametersOf(url, flat, fixture.TxResource(includedTimes(1, "")), fixture.Repeat(100, func(i int) string {
			return fixture.TxResource(fmt.Sprintf(`{"resourceType":"CodeSystem","url":"%d","content":"supplement","supplements":"http://x/b"}`, i))
		}), fixture.Repeat(100, func(i int) string { return fmt.Sprintf(`{"name":"useSupplement","valueCanonical":"%d"}`, i) })), maxSteps: 25_000},
		{name: "codes with designations", path: expand, body: fixture.ParametersOf(url, flat, fixture.TxResource(includedTimes(1, "")), fixture.Repeat(300, func(int) string {
			return `{"name":"designation","valueString":"a|b"}`
		})), maxSteps: 15_000},
		{name: "validations", path: "/ValueSet/$batch-validate-code", body: fixture.ParametersOf(url, flat, fixture.TxResource(includedTimes(50, filter("display", "regex", "a+"))),
			validations(100, fixture.ParametersOf(coding))), maxSteps: 20_000},
	}
}

// countdown is a context that is canceled after a given number of checks.
type countdown struct {
	context.Context
	remaining int
}

func (c *countdown) Err() error {
	if c.remaining--; c.remaining < 0 {
		return context.Canceled
	}
	return nil
}

// TestBombs checks that requests that would take too long are rejected before they incur the cost.
func TestBombs(t *testing.T) {
	for _, b := range bombs() {
		t.Run(b.name, func(t *testing.T) {
			b.needs(t)
			t.Parallel()
			base := terminologytest.Library(t, fixture.Colours)
			base.Definitions().Bounds.VisitedCodes = cmp.Or(b.maxSteps, 2_000_000)
			w, _ := terminologytest.Call(t, &api.Handler{Library: base}, http.MethodPost, b.path, b.body)
			if got := w.Body.String(); !strings.Contains(got, `"code":"too-costly"`) {
				t.Errorf("%d bytes: got %d %.300s", len(b.body), w.Code, got)
			}
			if len(b.body) > 30_000 {
				t.Errorf("it takes %d bytes", len(b.body))
			}
		})
	}
}

// TestSlots checks that only costly requests acquire a slot, that they acquire only one, and that they release it.
func TestSlots(t *testing.T) {
	full := errors.New("full")
	for _, test := range []struct {
		name, path, body string
		maxSteps         int
		refuse           error
		turns, status    int
	}{
		{name: "costly", path: "/ValueSet/$expand", body: bombs()[0].body, turns: 1, status: 422},
		{name: "costly, without a free slot", path: "/ValueSet/$expand", body: bombs()[0].body, refuse: full, turns: 1, status: 503},
		{name: "cheap", path: "/ValueSet/$expand", body: fixture.ParametersOf(`{"name":"url","valueUri":"http://x/colours/vs"}`, `{"name":"filter","valueString":"re"}`), refuse: full, status: 200},
		{name: "cheap validation", path: "/ValueSet/$validate-code", body: fixture.ParametersOf(`{"name":"url","valueUri":"http://x/colours/vs"}`,
			`{"name":"coding","valueCoding":{"system":"http://x/colours","code":"red"}}`), refuse: full, status: 200},
		{name: "large body", path: "/ValueSet/$expand", body: fixture.ParametersOf(`{"name":"url","valueUri":"http://x/colours/vs"}`,
			fixture.TxResource(`{"resourceType":"ValueSet","description":"`+strings.Repeat("x", 1_000_000)+`"}`)), refuse: full, turns: 1, status: 503},
		{name: "large body, with a free slot", path: "/ValueSet/$expand", body: fixture.ParametersOf(`{"name":"url","valueUri":"http://x/colours/vs"}`,
			fixture.TxResource(`{"resourceType":"ValueSet","description":"`+strings.Repeat("x", 1_000_000)+`"}`)), turns: 1, status: 200},
		{name: "large body of a validation", path: "/ValueSet/$validate-code", body: fixture.ParametersOf(`{"name":"url","valueUri":"http://x/colours/vs"}`,
			`{"name":"coding","valueCoding":{"system":"http://x/colours","code":"red"}}`,
			fixture.TxResource(`{"resourceType":"ValueSet","description":"`+strings.Repeat("x", 1_000_000)+`"}`)), turns: 1, status: 200},
	} {
		t.Run(test.name, func(t *testing.T) {
			terminologytest.RequireFeatures(t, test.path)
			t.Parallel()
			turns, active := 0, 0
			l := terminologytest.ColourLibrary(t)
			l.Definitions().Bounds.VisitedCodes = 1_300_000
			h := &api.Handler{Library: l, AcquireSlot: func(context.Context) (func(), error) {
				turns++
				if test.refuse != nil {
					return nil, test.refuse
				}
				active++
				return func() { active-- }, nil
			}}
			w := httptest.NewRecorder()
			r := httptest.NewRequest(http.MethodPost, "/fhir/R4"+test.path, strings.NewReader(test.body))
			r.Header.Set("Content-Type", "application/fhir+json")
			err := terminologytest.ServeError(h, &hookWriter{ResponseWriter: w, ask: func() {
				if active != 0 {
					t.Error("the slot is occupied while the client reads")
				}
			}}, r)
			status := w.Code
			if e, ok := errors.AsType[*outcome.Error](err); ok {
				status = e.Status
			}
			if status != test.status || turns != test.turns || active != 0 || errors.Is(err, budget.ErrBusy) != (test.status == 503) {
				t.Errorf("got %d, %v; %d slots, %d of them not released", status, err, turns, active)
			}
		})
	}
}

// hookWriter calls a function before each write.
type hookWriter struct {
	http.ResponseWriter
	ask func()
}

func (w *hookWriter) Write(b []byte) (int, error) {
	w.ask()
	return w.ResponseWriter.Write(b)
}

// TestBombsOfCanceledRequests checks that processing stops if a request with an unlimited budget is canceled, and that requests
// canceled in advance are not processed at all.
func TestBombsOfCanceledRequests(t *testing.T) {
	for _, b := range bombs() {
		t.Run(b.name, func(t *testing.T) {
			b.needs(t)
			t.Parallel()
			base := terminologytest.Library(t, fixture.Colours)
			base.Definitions().Bounds.VisitedCodes = math.MaxInt / 2
			for _, remaining := range []int{0, 1} {
				r := httptest.NewRequest(http.MethodPost, b.path, strings.NewReader(b.body))
				r.Header.Set("Content-Type", "application/fhir+json")
				r.URL.Path = "/fhir/R4" + b.path
				ctx := &countdown{Context: r.Context(), remaining: remaining}
				err := terminologytest.ServeError(&api.Handler{Library: base}, httptest.NewRecorder(), r.WithContext(ctx))
				if steps := cmp.Or(b.maxSteps, 2_000_000); steps < 2*50_000 && remaining > 0 {
					continue // finished before the next check
				}
				if !errors.Is(err, context.Canceled) {
					t.Errorf("canceled after %d checks: got %v", remaining, err)
				}
			}
		})
	}
}
