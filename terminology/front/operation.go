package front

import (
	"net/http"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/terminology/api"
)

// operation answers a request, or returns an error before it has written anything.
type operation func(w http.ResponseWriter, r *http.Request) error

// operations are those answered here.
type operations struct {
	ofType     map[string]operation // "ValueSet/$expand"
	ofInstance map[string]operation // the same, of ValueSet/{id}
	metadata   operation            // with mode=terminology; nil: not answered here
	others     map[string]operation // answered only if the next handler does not: "metadata", "ValueSet", "ValueSet/"
}

func newOperations(h *api.Handler, all bool) operations {
	o := operations{
		ofType:     map[string]operation{"ValueSet/$expand": h.Expand},
		ofInstance: map[string]operation{"ValueSet/$expand": h.Expand},
	}
	if !all {
		return o
	}
	for _, registered := range api.Registered() {
		name, answer := registered.Type+"/$"+registered.Name, h.Operation(registered)
		o.ofType[name] = answer
		if registered.OnInstance {
			o.ofInstance[name] = answer
		}
	}
	o.metadata = h.TerminologyCapabilities
	o.others = map[string]operation{
		"metadata": h.CapabilityStatement, "$versions": h.Versions,
		"CodeSystem": h.Search, "CodeSystem/": h.Read, "ValueSet": h.Search, "ValueSet/": h.Read,
	}
	return o
}

func (o operations) find(r *http.Request, base string) operation {
	path, below := strings.CutPrefix(r.URL.Path, base+"/")
	if !below || r.Method != http.MethodGet && r.Method != http.MethodHead && r.Method != http.MethodPost {
		return nil
	}
	if path == "metadata" && r.Method != http.MethodPost && r.URL.Query().Get("mode") == "terminology" {
		return o.metadata
	}
	if o.ofType[path] != nil {
		return o.ofType[path]
	}
	kind, rest, _ := strings.Cut(path, "/")
	if id, name, ok := strings.Cut(rest, "/"); ok && id != "" {
		return o.ofInstance[kind+"/"+name]
	}
	return nil
}
