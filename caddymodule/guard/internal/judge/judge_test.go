package judge

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/policy"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// answers are those of a FHIR server, by path. All else is not found.
type answers map[string]*message.Answer

func (s answers) Ask(_ context.Context, c message.Call) (*message.Answer, error) {
	if a := s[c.Path]; a != nil {
		return a, nil
	}
	return message.NewAnswer(http.StatusNotFound, nil), nil
}

func (answers) Asked() int { return 0 }

func found(text string) *message.Answer { return message.NewAnswer(http.StatusOK, []byte(text)) }

// Older versions may be shown only if the server says that the current one may: it is that resource, and no policy denies
// it. Of a deleted resource the version before counts.
func TestCheckCurrent(t *testing.T) {
	t.Parallel()
	const plain, star = `{"resourceType":"Patient","id":"1"}`, `{"resourceType":"Patient","id":"1","meta":{"security":[{"code":"VIP"}]}}`
	history := func(entries string) *message.Answer {
		return found(`{"resourceType":"Bundle","type":"history","entry":[` + entries + `]}`)
	}
	gone := message.NewAnswer(http.StatusGone, nil)
	deletion := `{"request":{"method":"DELETE","url":"Patient/1"},"response":{"status":"204"}}`
	rules, err := policy.Compile([]policy.Rule{{Effect: policy.Deny, Expression: `resource.?meta.?security.orValue([]).exists(s, s.code == "VIP")`}})
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		server answers
		shown  bool
	}{
		"the current version":             {answers{"Patient/1": found(plain)}, true},
		"a denied one":                    {answers{"Patient/1": found(star)}, false},
		"another resource":                {answers{"Patient/1": found(`{"resourceType":"Patient","id":"2"}`)}, false},
		"another type":                    {answers{"Patient/1": found(`{"resourceType":"Person","id":"1"}`)}, false},
		"no resource":                     {answers{"Patient/1": found(`[]`)}, false},
		"not found":                       {answers{}, false},
		"a refusal":                       {answers{"Patient/1": message.NewAnswer(http.StatusForbidden, nil)}, false},
		"a failure":                       {answers{"Patient/1": message.NewAnswer(http.StatusInternalServerError, nil)}, false},
		"deleted":                         {answers{"Patient/1": gone, "Patient/1/_history": history(deletion + `,{"resource":` + plain + `}`)}, true},
		"denied, then deleted":            {answers{"Patient/1": gone, "Patient/1/_history": history(deletion + `,{"resource":` + star + `},{"resource":` + plain + `}`)}, false},
		"deleted, without versions":       {answers{"Patient/1": gone, "Patient/1/_history": history(deletion)}, false},
		"deleted, with another's":         {answers{"Patient/1": gone, "Patient/1/_history": history(`{"resource":{"resourceType":"Patient","id":"2"}}`)}, false},
		"deleted, and no history is told": {answers{"Patient/1": gone}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := Judge{
				Server: tt.server, R: httptest.NewRequest(http.MethodGet, "/", nil), Granted: new(access.Rights),
				Policies: Policies{Rules: rules, Input: func(*http.Request, *guard.Token) policy.Input { return policy.Input{} }},
			}
			c := message.Get("Patient/1/_history/1", "")
			i, err := c.Interaction()
			if err != nil {
				t.Fatal(err)
			}
			_, err = x.Under(t.Context(), c, i, func() (*message.Answer, error) {
				return nil, x.CheckCurrent(t.Context(), interaction.Reference{Type: "Patient", ID: "1"})
			})
			if (err == nil) != tt.shown {
				t.Error(err)
			}
		})
	}
}

// One target of a Provenance at least is the patient's own: what everyone sees says not whose the Provenance is.
func TestProvenanceOfOwn(t *testing.T) {
	t.Parallel()
	server := answers{
		"Device/own":      found(`{"resourceType":"Device","id":"own","patient":{"reference":"Patient/p"}}`),
		"Device/nobodys":  found(`{"resourceType":"Device","id":"nobodys"}`),
		"Device/anothers": found(`{"resourceType":"Device","id":"anothers","patient":{"reference":"Patient/q"}}`),
		"Organization/o":  found(`{"resourceType":"Organization","id":"o"}`),
	}
	rights := access.New(access.Holder{Scope: "patient/*.rs", Patient: "p"}, access.NewShared(nil))
	for _, tt := range []struct {
		targets []string
		want    bool
	}{
		{[]string{"Device/own"}, true},
		{[]string{"Device/own", "Device/nobodys"}, true},
		{[]string{"Device/nobodys", "Device/own"}, true},
		{[]string{"Patient/p", "Device/nobodys"}, true},
		{[]string{"Device/nobodys"}, false},
		{[]string{"Device/nobodys", "Organization/o"}, false},
		{[]string{"Device/own", "Device/anothers"}, false},
		{[]string{"Device/own", "Device/none"}, false},
	} {
		text := `{"resourceType":"Provenance","id":"x","target":[{"reference":"` + strings.Join(tt.targets, `"},{"reference":"`) + `"}]}`
		res, err := resource.Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		x := Judge{Server: server, R: httptest.NewRequest(http.MethodGet, "/", nil), Granted: rights}
		if got, err := x.Covered(t.Context(), res, rights.Grants); err != nil || got != tt.want {
			t.Errorf("of %s: %v, %v", tt.targets, got, err)
		}
	}
}

// A Binary is opened only by DocumentReferences that name it as an attachment, whatever a server finds by its address.
func TestReferrerNamesBinary(t *testing.T) {
	t.Parallel()
	rights := access.New(access.Holder{Scope: "patient/*.rs", Patient: "p"}, access.NewShared(nil))
	document := func(patient, url string) message.Entry {
		res, err := resource.Parse([]byte(`{"resourceType":"DocumentReference","id":"d","status":"current","subject":{"reference":"Patient/` + patient +
			`"},"description":"Binary/b","content":[{"attachment":{"url":"` + url + `"}}]}`))
		if err != nil {
			t.Fatal(err)
		}
		return message.Entry{Parsed: res}
	}
	for name, tt := range map[string]struct {
		entries []message.Entry
		want    bool
	}{
		"that names it":                  {[]message.Entry{document("p", "Binary/b")}, true},
		"that names another":             {[]message.Entry{document("p", "Binary/c")}, false},
		"that names a version":           {[]message.Entry{document("p", "Binary/b/_history/1")}, false},
		"of another patient":             {[]message.Entry{document("q", "Binary/b")}, false},
		"of both":                        {[]message.Entry{document("p", "Binary/b"), document("q", "Binary/b")}, false},
		"of another, that names another": {[]message.Entry{document("p", "Binary/b"), document("q", "Binary/c")}, true},
		"none":                           {nil, false},
	} {
		x := Judge{Server: answers{}, R: httptest.NewRequest(http.MethodGet, "/", nil), Granted: rights}
		if got, err := x.isReferred(t.Context(), "p", []string{"Binary/b"}, &message.Bundle{Entries: tt.entries}); err != nil || got != tt.want {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

// The addresses of a Binary that are searched for have no character that separates the values of a search.
func TestAddressesOfBinary(t *testing.T) {
	t.Parallel()
	x := Judge{At: message.Addresses{Base: "https://fhir.example.org/fhir/R4"}}
	for own, want := range map[string]bool{
		"http://hapi:8080/fhir/Binary/b": true, "http://hapi:8080/fhir/Binary/b/_history/1": true,
		"http://hapi/x,Binary/c/Binary/b": false, `http://hapi/x\/Binary/b`: false, "http://hapi/x|y/Binary/b": false, "http://hapi/a$b/Binary/b": false,
		"http://hapi/Binary/c": false, "": false,
	} {
		a := message.NewAnswer(http.StatusOK, nil)
		a.Header.Set("Content-Location", own)
		all := x.addressesOf(interaction.Reference{Type: "Binary", ID: "b"}, a)
		if got := slices.Contains(all, message.WithoutVersion(own)); got != want || len(all) < 3 {
			t.Errorf("%q: %q", own, all)
		}
	}
}
