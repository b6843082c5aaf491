package terminology

import (
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/terminology/fhirjson"
	"github.com/caddy-fhir/caddy-fhir/terminology/textindex"
)

// expandParameters are the parameters of $expand that are implemented.
var expandParameters = []string{
	"activeOnly", "cache-id", "check-system-version", "context", "contextDirection", "count", "date", "default-valueset-version", "designation",
	"displayLanguage", "exclude-system", "excludeNested", "excludeNotForUI", "excludePostCoordinated", "filter",
	"force-system-version", "includeDefinition", "includeDesignations", "offset", "property", "system-version", "tx-resource",
	"url", "useSupplement", "valueSet", "valueSetVersion", "versionsMatch",
}

// TerminologyCapabilities answers [base]/metadata?mode=terminology: which code systems are here, in which
// versions, and what $expand can do. See [Handler.Expand] for what is written and returned.
func (h *Handler) TerminologyCapabilities(w http.ResponseWriter, r *http.Request) error {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return &Error{Status: http.StatusMethodNotAllowed, Code: "not-supported", Text: "metadata is answered to GET and HEAD only"}
	}
	inputs, err := queryInputs(r.URL.RawQuery)
	if err != nil {
		return err
	}
	f, err := negotiate(r, inputs)
	if err != nil {
		return err
	}
	l := h.current()
	defer runtime.KeepAlive(l)
	return f.write(w, r, l.capabilities())
}

// capabilities returns the TerminologyCapabilities.
func (l *Library) capabilities() []byte {
	dst := append([]byte(nil), `{"resourceType":"TerminologyCapabilities","version":"1","name":"TerminologyService","title":"Terminology service",`+
		`"status":"active","date":"`...)
	dst = append(l.loaded.AppendFormat(dst, time.RFC3339), `","kind":"instance"`...)
	list := fhirjson.Array{Name: "codeSystem"}
	for i := range l.systems {
		dst = l.appendSystem(dst, &list, &l.systems[i])
	}
	dst = append(list.End(dst), `,"expansion":{"hierarchical":true,"paging":true`...)
	parameters := fhirjson.Array{Name: "parameter"}
	for _, name := range expandParameters {
		dst = append(fhirjson.AppendString(append(parameters.Next(dst), `{"name":`...), name), '}')
	}
	dst = fhirjson.AppendMember(parameters.End(dst), "textFilter", textindex.Rule)
	return append(dst, `},"codeSearch":"all","validateCode":{"translations":true},"translation":{"needsMap":true}}`...)
}

// appendSystem appends a code system of which there are concepts here, with its versions.
func (l *Library) appendSystem(dst []byte, list *fhirjson.Array, s *system) []byte {
	var versions []*codeSystem
	for _, index := range s.versions {
		if cs := l.codeSystems[index]; cs.content.hasConcepts() {
			versions = append(versions, cs)
		}
	}
	if len(versions) == 0 {
		return dst
	}
	slices.SortFunc(versions, func(a, b *codeSystem) int { return strings.Compare(a.version, b.version) })
	dst = fhirjson.AppendString(append(list.Next(dst), `{"uri":`...), s.url)
	inner := fhirjson.Array{Name: "version"}
	for _, cs := range versions {
		dst = append(inner.Next(dst), '{')
		if cs.version != "" {
			dst = append(fhirjson.AppendString(append(dst, `"code":`...), cs.version), ',')
		}
		dst = strconv.AppendBool(append(dst, `"isDefault":`...), l.codeSystems[s.current] == cs)
		dst = append(dst, '}')
	}
	subsumes := !slices.ContainsFunc(versions, func(cs *codeSystem) bool { return cs.notSubsuming })
	dst = strconv.AppendBool(append(inner.End(dst), `,"subsumption":`...), subsumes)
	return append(dst, '}')
}
