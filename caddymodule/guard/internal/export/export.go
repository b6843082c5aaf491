// Package export starts bulk data exports and serves their jobs and files. A type can be exported only if all its resources are
// accessible.
//
//	export.go  the kick-off: the types that a system scope covers completely, and the permitted parameters
//	job.go     the job, accessed through sealed links, and its files, which are streamed
//
// References: Bulk Data Access IG 2.0.
package export

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/access"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/fhirserver"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/judge"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/operation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/paging"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/rule"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/compartment"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/searchparam"
)

// Handler answers the export requests of one client request.
type Handler struct {
	Server       *fhirserver.Server // sends requests to the FHIR server
	Judge        *judge.Judge       // judges responses from the FHIR server
	Addresses    message.Addresses  // public addresses of the FHIR API
	Sealing      paging.Sealing     // seals links to the job and its files
	Binding      string             // binds links to the token
	Request      *http.Request      // the client's request
	Parameters   searchparam.Set    // supported search parameters
	MaxLineBytes int64              // maximum size of a line in bytes
}

// missingExportScopes returns the scopes for exporting types if the token has a system scope. Other tokens cannot export.
func (x *Handler) missingExportScopes(types ...string) string {
	if !slices.ContainsFunc(x.Judge.Rights().Scopes, func(scope string) bool { return strings.HasPrefix(scope, "system/") }) {
		return ""
	}
	return systemScopes(types...)
}

var errExportNotAllowed = errors.New("export cannot be restricted to the scopes")

// Export starts a bulk data export (Bulk Data Access 2.0). It requires system scopes and exports only types that they cover
// without constraints. The job's URL is sealed for the token.
func (x *Handler) Export(ctx context.Context, c message.Call, i interaction.Interaction) (*message.Response, error) {
	s := exportSelection{x.Judge.Rights().UnrestrictedTypes("system", message.ReadSearch), i, x.Parameters, message.IsLenient(c.Header)}
	needed, ok := requiredTypes(i)
	switch {
	case !ok:
		return nil, message.Forbidden(operation.ErrOperationNotAllowed, "$export is only supported on the system, on Patient and on a Group.")
	case !i.IsAsync:
		return nil, message.InvalidRequest(errExportNotAllowed, "$export requires the header Prefer: respond-async.")
	case !s.AllTypes && len(s.Names) == 0:
		return nil, message.Forbidden(message.ErrInsufficientScope, "$export requires a system scope with the permissions r and s and without a constraint.").WithScope(x.missingExportScopes(needed...))
	}
	for _, name := range needed {
		if !s.Has(name) {
			return nil, message.Forbidden(message.ErrInsufficientScope, "This export requires a system scope for %s with the permissions r and s.", name).WithScope(x.missingExportScopes(name))
		}
	}
	parameters, err := operation.Parameters(c, i)
	if err != nil {
		return nil, err
	}
	if parameters, err = s.confineParameters(parameters); err != nil {
		return nil, err
	}
	if s.MayBeDenied {
		if err := x.checkSubjects(ctx, s, parameters); err != nil {
			return nil, err
		}
	}
	base, err := x.serverBase(ctx)
	if err != nil {
		return nil, err
	}
	a, err := x.Server.Do(ctx, kickOffCall(c, parameters))
	if err != nil {
		return nil, err
	}
	location := a.Header.Get("Content-Location")
	if a.Status != http.StatusAccepted || location == "" {
		return nil, operation.Failure(a, c.SentTerms())
	}
	return x.acceptedResponse(ctx, job{Base: base, Request: strings.TrimSuffix(c.Path+"?"+c.Query, "?"), Types: s.Names, AllTypes: s.AllTypes, JudgedByPolicies: s.MayBeDenied}, location)
}

// requiredTypes returns the types that the token must cover for an export at its level; ok is false if the level is unknown.
func requiredTypes(i interaction.Interaction) (needed []string, ok bool) {
	switch {
	case i.Type == "":
		return nil, true
	case i.Type == "Patient" && i.ID == "":
		return []string{"Patient"}, true
	case i.Type == "Group" && i.ID != "":
		return []string{"Group", "Patient"}, true
	}
	return nil, false
}

// acceptedResponse returns the 202 response with the sealed URL of the job.
func (x *Handler) acceptedResponse(ctx context.Context, j job, location string) (_ *message.Response, err error) {
	if j.Path, j.Query, err = splitBelowBase(j.Base, location); err != nil {
		return nil, err
	}
	address, err := x.sealJob(ctx, JobPath, j)
	if err != nil {
		return nil, err
	}
	a := message.NewResponse(http.StatusAccepted, nil)
	a.Header.Set("Content-Location", address)
	return a, nil
}

// serverBase returns the path of the FHIR API in the FHIR server's own links, which a proxy may have rewritten. It is taken
// from the self link of a search.
func (x *Handler) serverBase(ctx context.Context) (string, error) {
	a, err := x.Server.Do(ctx, message.NewGet("Patient", "_id=none&_count=1"))
	if err != nil {
		return "", err
	}
	if b, err := x.Addresses.ParseSearchResponse(a, false, nil, message.Call{}.SentTerms); err == nil {
		if base, ok := paging.BaseOf(b.Links.Find("self"), "Patient"); ok {
			return base, nil
		}
	}
	return x.Addresses.Path, nil
}

// systemScopes returns the scopes for exporting the given types. Without types, it returns the scope for all types.
func systemScopes(types ...string) string {
	if len(types) == 0 {
		types = []string{smart.AnyType}
	}
	scopes := make([]string, len(types))
	for n, t := range types {
		scopes[n] = smart.ResourceScope{Level: "system", Type: t, Permission: message.ReadSearch}.String()
	}
	return strings.Join(scopes, " ")
}

// splitBelowBase returns the path and query of a link below the FHIR server's base.
func splitBelowBase(base, link string) (path, query string, err error) {
	u, err := url.Parse(link)
	if err != nil {
		return "", "", message.NewWithheldError(err)
	}
	rest, ok := strings.CutPrefix(u.Path, base+"/")
	if !ok || rest == "" {
		return "", "", message.NewWithheldError(paging.ErrForeignLink)
	}
	return rest, u.RawQuery, nil
}

// outputFormats are the values of _outputFormat for NDJSON (Bulk Data Access 2.0, "Query Parameters"). The second value results
// from decoding the plus sign in a query to a space.
var outputFormats = []string{typeNDJSON, "application/fhir ndjson", "application/ndjson", "ndjson"}

// exportParameters maps the permitted kick-off parameters to the element of their value in a body (Bulk Data Access 2.0, "Query
// Parameters"). _elements and the format parameters are dropped; policies may depend on elements that _elements would remove.
var exportParameters = map[string]string{
	"_outputFormat": "valueString", "_since": "valueInstant", "_until": "valueInstant", "_type": "valueString",
	"_typeFilter": "valueString", "includeAssociatedData": "valueString", "organizeOutputBy": "valueString",
	"patient": "valueReference",
}

// exportSelection contains the types and search parameters that a kick-off may use.
type exportSelection struct {
	access.UnrestrictedTypes
	interaction interaction.Interaction
	parameters  searchparam.Set // search parameters for _typeFilter
	isLenient   bool            // Prefer: handling=lenient
}

// confineParameters checks the parameters of a kick-off and sets _type to the exported types.
func (s exportSelection) confineParameters(parameters []smart.Parameter) ([]smart.Parameter, error) {
	var requestedTypes []string
	forwarded := make([]smart.Parameter, 0, len(parameters)+1)
	for _, p := range parameters {
		switch {
		case p.Name == "_type":
			requestedTypes = append(requestedTypes, splitList(p.Value)...)
			continue
		case p.Name == "_outputFormat" && slices.Contains(outputFormats, p.Value):
			p.Value = typeNDJSON
		case p.Name == "_outputFormat" && s.isLenient:
			continue
		case p.Name == "_outputFormat":
			return nil, message.InvalidRequest(errExportNotAllowed, "The value of _outputFormat is not supported: use %s.", typeNDJSON)
		}
		forwarded = append(forwarded, p)
	}
	if len(requestedTypes) == 0 && !s.AllTypes {
		if requestedTypes = s.exportableTypes(); len(requestedTypes) == 0 {
			return nil, message.Forbidden(message.ErrInsufficientScope, "No system scope covers a type that this export can contain.").WithScope(systemScopes())
		}
	}
	for _, name := range requestedTypes {
		if !s.Has(name) || !interaction.IsType(name) {
			rejection := message.Forbidden(message.ErrInsufficientScope, "No system scope allows exporting %s: this requires the permissions r and s on the entire type.", strconv.Quote(name))
			if interaction.IsType(name) {
				rejection.Scope = systemScopes(name)
			}
			return nil, rejection
		}
	}
	for _, p := range forwarded {
		if err := s.checkParameter(p, requestedTypes); err != nil {
			return nil, err
		}
	}
	if len(requestedTypes) > 0 {
		forwarded = append(forwarded, smart.Parameter{Name: "_type", Value: strings.Join(requestedTypes, ",")})
	}
	return forwarded, nil
}

// splitList returns the non-empty elements of a comma-separated list.
func splitList(value string) []string {
	var words []string
	for word := range strings.SplitSeq(value, ",") {
		if word = strings.TrimSpace(word); word != "" {
			words = append(words, word)
		}
	}
	return words
}

// exportableTypes returns the covered types that an export at its level can contain: those in the Patient compartment, because
// some FHIR servers reject others. Group and List are excluded because they refer to other patients.
func (s exportSelection) exportableTypes() []string {
	if s.interaction.Type == "" {
		return s.Names
	}
	return slices.DeleteFunc(slices.Clone(s.Names), func(name string) bool {
		_, ok := compartment.PatientParameters(name)
		return !ok || s.interaction.Type == "Patient" && (name == "Group" || name == "List")
	})
}

// checkParameter returns an error if a parameter could reveal resources that may not be exported. If there are policies,
// associated data and files by patient are also rejected, because both reveal which records exist.
func (s exportSelection) checkParameter(p smart.Parameter, requestedTypes []string) error {
	ok := exportParameters[p.Name] != "" && (p.Name != "patient" || s.interaction.Type != "")
	switch p.Name {
	case "_typeFilter":
		ok = s.AllTypes && !s.MayBeDenied || s.checkFilter(p.Value, requestedTypes)
	case "includeAssociatedData":
		ok = !s.MayBeDenied && (s.AllTypes || s.Has("Provenance") && (p.Value == "LatestProvenanceResources" || p.Value == "RelevantProvenanceResources"))
	case "organizeOutputBy":
		ok = !s.MayBeDenied
	}
	if !ok {
		return message.Forbidden(message.ErrDisclosure, "This value of the $export parameter %s is not allowed.", strconv.Quote(p.Name))
	}
	return nil
}

// checkFilter reports whether a _typeFilter is a list of permitted searches. A comma belongs to a search unless another search
// follows it.
func (s exportSelection) checkFilter(value string, requestedTypes []string) bool {
	var searches []string
	for part := range strings.SplitSeq(value, ",") {
		if strings.Contains(part, "?") {
			searches = append(searches, part)
		} else if len(searches) > 0 {
			searches[len(searches)-1] += "," + part
		} else {
			return false
		}
	}
	return !slices.ContainsFunc(searches, func(search string) bool { return !s.checkSearch(search, requestedTypes) })
}

// checkSearch reports whether a search compares only elements of one exported type. Modifiers, chains, and parameters without
// paths, such as _content and _list, are not permitted. On some FHIR servers, a search for Patient determines for which
// patients other records are exported. If there are policies, such a search is therefore permitted only in exports of the
// system or of Patient alone.
func (s exportSelection) checkSearch(search string, requestedTypes []string) bool {
	name, query, _ := strings.Cut(search, "?")
	parameters, err := smart.ParseParameters(query)
	if err != nil || len(requestedTypes) > 0 && !slices.Contains(requestedTypes, name) {
		return false
	}
	if s.MayBeDenied && s.interaction.Type != "" && name == "Patient" && !slices.Equal(requestedTypes, []string{"Patient"}) {
		return false
	}
	return !slices.ContainsFunc(parameters, func(p smart.Parameter) bool {
		parameter, ok := s.parameters.Lookup(name, p.Name)
		return !ok || len(parameter.Paths) == 0
	})
}

// patientID matches a value of the kick-off parameter patient.
var patientID = regexp.MustCompile(`^(?:Patient/)?([A-Za-z0-9.-]{1,64})$`)

// patientsPerSearch is the maximum number of patients that one search looks up.
const patientsPerSearch = 50

// checkSubjects rejects an export of a Group or of patients that policies deny, with the same error as for a missing Group or
// patient. The FHIR server would export a denied one, but reject a missing one.
func (x *Handler) checkSubjects(ctx context.Context, s exportSelection, parameters []smart.Parameter) error {
	if s.interaction.Type == "Group" {
		of := interaction.Reference{Type: "Group", ID: s.interaction.ID}
		a, err := x.Server.Do(ctx, message.NewGet(of.String(), ""))
		if err != nil {
			return err
		}
		if _, err := x.Judge.ReadCovered(ctx, of, x.Judge.Rights().GrantsFor(of.Type, smart.Read), a); err != nil {
			return err
		}
	}
	var ids []string
	for _, p := range parameters {
		if p.Name != "patient" {
			continue
		}
		for name := range strings.SplitSeq(p.Value, ",") {
			match := patientID.FindStringSubmatch(strings.TrimSpace(name))
			if match == nil {
				return message.NotFound()
			}
			ids = append(ids, match[1])
		}
	}
	slices.Sort(ids)
	for chunk := range slices.Chunk(slices.Compact(ids), patientsPerSearch) {
		if err := x.checkPatients(ctx, chunk); err != nil {
			return err
		}
	}
	return nil
}

// checkPatients returns an error if one of the patients is denied or does not exist.
func (x *Handler) checkPatients(ctx context.Context, ids []string) error {
	a, err := x.Server.Do(ctx, message.NewGet("Patient", smart.EncodeParameters([]smart.Parameter{
		{Name: "_id", Value: strings.Join(ids, ",")}, {Name: "_count", Value: strconv.Itoa(len(ids))},
	})))
	if err != nil {
		return err
	}
	found, err := x.Addresses.ParseSearchResponse(a, false, nil, message.Call{}.SentTerms)
	if err != nil {
		return err
	}
	missing := slices.Clone(ids)
	for _, e := range found.Entries {
		if len(e.Resource) == 0 {
			continue
		}
		res, err := x.Addresses.Parse(e.Resource)
		if err != nil {
			return err
		}
		if res.Type == "Patient" && x.Judge.PolicyEffect(ctx, res) != rule.Deny {
			missing = slices.DeleteFunc(missing, func(id string) bool { return id == res.ID })
		}
	}
	if len(missing) > 0 {
		return message.NotFound()
	}
	return nil
}

// kickOffCall returns the kick-off with the judged parameters, sent by the client's method.
func kickOffCall(c message.Call, parameters []smart.Parameter) message.Call {
	header := http.Header{"Prefer": {"respond-async"}}
	if c.Method != http.MethodPost {
		return message.Call{Method: http.MethodGet, Path: c.Path, Query: smart.EncodeParameters(parameters), Header: header}
	}
	list := make([]map[string]any, 0, len(parameters))
	for _, p := range parameters {
		element := exportParameters[p.Name]
		if element == "valueReference" {
			list = append(list, map[string]any{"name": p.Name, element: map[string]string{"reference": p.Value}})
		} else {
			list = append(list, map[string]any{"name": p.Name, element: p.Value})
		}
	}
	body := map[string]any{"resourceType": "Parameters"}
	if len(list) > 0 {
		body["parameter"] = list
	}
	text, _ := json.Marshal(body) // marshaling strings never fails
	header.Set("Content-Type", message.TypeJSON)
	return message.Call{Method: http.MethodPost, Path: c.Path, Header: header, Body: text}
}
