package enforce_test

import (
	"errors"
	"flag"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/enforce"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/compartment"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/searchparam"
)

// challengedRequests are a request for each interaction, with a type <T>.
var challengedRequests = []string{
	"GET <T>/x", "GET <T>/x/_history/1", "GET <T>/x/_history", "GET <T>/_history", "GET _history",
	"GET <T>", "GET <T>?_id=x", "POST <T>/_search", "GET Patient/a/<T>", "GET ?_type=<T>", "GET <T>?_summary=count",
	"POST <T>", "POST <T> If-None-Exist: _id=x", "PUT <T>/x", "PUT <T>?_id=x", "PATCH <T>/x", "PATCH <T>?_id=x", "DELETE <T>/x", "DELETE <T>?_id=x",
	"GET <T>/x/$meta", "GET <T>/x/$everything", "GET <T>/$lastn?patient=Patient/a", "GET <T>/$docref?patient=a", "POST <T>/$validate", "GET <T>/$expand", "GET <T>/$unheard",
	"GET $export?_type=<T>", "GET Patient/$export?_type=<T>",
}

// challengedScopes are scopes of a token with patient a, and a practitioner or patient c as its user.
var challengedScopes = []string{
	"", "openid fhirUser", "patient/*.rs", "patient/*.cruds", "patient/*.r patient/*.s", "patient/*.r", "patient/*.s", "patient/Patient.r",
	"patient/<T>.r", "patient/<T>.s", "patient/<T>.r patient/<T>.s", "patient/*.s patient/<T>.r", "patient/<T>.cud", "patient/<T>.u patient/<T>.rs", "patient/<T>.rs?_id=x",
	"patient/*.read", "patient/*.write", "user/*.rs", "user/<T>.cruds", "user/*.r user/<T>.s", "user/Patient.rs patient/Patient.rs", "user/*.cruds?_id=x",
	"system/*.rs", "system/*.cruds", "system/<T>.rs", "system/<T>.r system/*.s", "system/Patient.cruds", "system/<T>.cruds?_id=x",
}

var slow = flag.Bool("slow", false, "test every combination")

// everyCase are the types that differ in their rules. Of the others, each request and each set of scopes is tested with a
// seventh of them, unless -slow is set.
var everyCase = []string{"Patient", "Observation", "Binary", "Bundle", "Provenance", "Group", "Device", "Practitioner", "Subscription", "ValueSet", "Library", "Task"}

// TestChallenge is over all types, interactions and many sets of scopes: a challenge never names a scope that the token has,
// and a client that gets the scopes it is told of gets an answer, or a refusal without a challenge.
func TestChallenge(t *testing.T) {
	t.Parallel()
	practitioner, patient := clinician.User, interaction.Reference{Type: "Patient", ID: "c"}
	for k, resourceType := range interaction.Types() {
		t.Run(resourceType, func(t *testing.T) {
			t.Parallel()
			c := challenges{t: t, text: ownOf(resourceType), done: map[string]*guard.Error{}}
			c.g = newGateway(t, c.text, `{"resourceType":"Patient","id":"a"}`)
			for m, line := range challengedRequests {
				for n, scope := range challengedScopes {
					if !*slow && (k+m+n)%7 != 0 && !slices.Contains(everyCase, resourceType) {
						continue
					}
					for _, user := range []interaction.Reference{practitioner, patient} {
						if user == patient && !strings.Contains(scope, "user/") {
							continue
						}
						h := access.Holder{Scope: strings.ReplaceAll(scope, "<T>", resourceType), Patient: "a", User: user}
						if user == patient {
							h.UserPatient = "c"
						}
						c.check(h, strings.ReplaceAll(line, "<T>", resourceType), 0)
					}
				}
			}
		})
	}
}

// challenges are the refusals of requests about one type.
type challenges struct {
	t    *testing.T
	g    *gateway
	text string                  // a resource of the type
	done map[string]*guard.Error // by holder and request
}

// check sends a request, and again with each scope that a challenge names, until there is no challenge any more.
func (c challenges) check(h access.Holder, line string, step int) {
	c.t.Helper()
	refusal := c.of(h, line)
	if refusal == nil || refusal.Scope == "" {
		return
	}
	if step == 3 {
		c.t.Errorf("%s under %q: challenge after challenge: %s", line, h.Scope, refusal.Scope)
		return
	}
	for wanted := range strings.FieldsSeq(refusal.Scope) {
		if granted, err := smart.Grant([]string{wanted}, strings.Fields(h.Scope)); err == nil && slices.Contains(granted, wanted) {
			c.t.Errorf("%s under %q names %s, which is held: %s", line, h.Scope, wanted, refusal.Description)
			continue
		}
		more := h
		more.Scope += " " + wanted
		if again := c.of(more, line); again != nil && errors.Is(again.Err, message.ErrScope) && again.Scope == "" {
			c.t.Errorf("%s under %q: %s does not help: %s", line, h.Scope, wanted, again.Description)
		}
		c.check(more, line, step+1)
	}
}

// of is the refusal of a request; nil if it is answered.
func (c challenges) of(h access.Holder, line string) *guard.Error {
	key := h.Scope + " " + h.User.String() + " " + line
	refusal, ok := c.done[key]
	if !ok {
		refusal = c.send(h, line)
		c.done[key] = refusal
	}
	return refusal
}

func (c challenges) send(h access.Holder, line string) *guard.Error {
	text, g := c.text, c.g
	if !strings.HasPrefix(line, "GET") {
		g = newGateway(c.t, text, `{"resourceType":"Patient","id":"a"}`)
	}
	line, header, _ := strings.Cut(line, " If-None-Exist: ")
	method, target, _ := strings.Cut(line, " ")
	body := text
	contentType := "application/fhir+json"
	switch {
	case method == http.MethodGet || method == http.MethodDelete:
		body = ""
	case method == http.MethodPatch:
		body, contentType = `[{"op":"add","path":"/language","value":"de"}]`, "application/json-patch+json"
	case strings.HasSuffix(target, "_search"):
		body, contentType = "_id=x", "application/x-www-form-urlencoded"
	case strings.HasSuffix(target, "$validate"):
		body = `{"resourceType":"Parameters","parameter":[{"name":"resource","resource":` + text + `}]}`
	}
	r := httptest.NewRequest(method, "/fhir/R4/"+target, strings.NewReader(body))
	r.Header.Set("Content-Type", contentType)
	r.Header.Set("Accept", "application/fhir+json")
	if header != "" {
		r.Header.Set("If-None-Exist", header)
	}
	if strings.Contains(target, "$export") {
		r.Header.Set("Prefer", "respond-async")
	}
	err := g.Serve(httptest.NewRecorder(), r, g.server, enforce.Bearer{Rights: access.New(h, g.Shared)})
	refusal, _ := errors.AsType[*guard.Error](err)
	return refusal
}

// ownOf is a resource of a type that is patient a's, as far as its type says whose it is.
func ownOf(resourceType string) string {
	text := `{"resourceType":"` + resourceType + `","id":"x"`
	for _, name := range append(membershipOf(resourceType), "patient") {
		p, ok := searchparam.Lookup(resourceType, name)
		if ok && len(p.Paths) > 0 {
			return text + "," + elementAt(p.Paths[0].Elements, `[{"reference":"Patient/a"}]`) + "}"
		}
	}
	return text + "}"
}

func membershipOf(resourceType string) []string {
	names, _ := compartment.Patient(resourceType)
	return slices.Clone(names)
}
