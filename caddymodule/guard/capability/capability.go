// Package capability adapts the FHIR server's CapabilityStatement to the guard. [Metadata] answers GET metadata, which requires
// no token. [ApplyChanges] replaces the elements that differ and adds the OAuth endpoints; all other bytes stay unchanged.
//
// References: FHIR R4, CapabilityStatement; SMART App Launch 2.2.0, "Conformance".
package capability

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/fairmemory"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/fhirserver"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/operation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/paging"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/rawjson"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// Metadata answers GET metadata, which requires no token, with the FHIR server's CapabilityStatement, adapted to the guard. The
// statement is JSON and lists only JSON as a format. Responses to mode=terminology are forwarded unchanged. Metadata is safe
// for concurrent use. It must not be modified or copied after first use.
type Metadata struct {
	// Base is the path of the FHIR API. Required.
	Base string
	// Changes are the changes to the statement.
	Changes Changes
	// LocalOperations returns the operations that handlers in front of the FHIR server answered; it is called after the request
	// was handled. They are added to Changes.LocalOperations. Default: none.
	LocalOperations func(r *http.Request) []LocalOperation
	// Limit is the maximum size of the FHIR server's statement in bytes; larger ones are an error. Default: 16 MiB.
	Limit int64
	// Memory limits the memory used by all requests together. Default: unlimited.
	Memory *fairmemory.Memory
	// Network returns the client network of a request, which determines its share of the memory, because the request has no
	// token. Default: all requests use the same share.
	Network func(r *http.Request) string

	mu    sync.Mutex
	cache []cachedStatement // most recently used last
}

// cachedStatement is an adapted statement. Statements can exceed a megabyte, but FHIR servers return the same one for minutes.
type cachedStatement struct {
	sourceHash [sha256.Size]byte // hash of the FHIR server's statement and the number of local operations
	text       []byte
	etag       string
}

// maxStatements is the maximum number of cached statements. Each value of _summary and _elements has a separate statement.
const maxStatements = 4

// ServeHTTP answers GET metadata. Errors are a *guard.Error or come from the next handler.
func (m *Metadata) ServeHTTP(w http.ResponseWriter, r *http.Request, next message.NextHandler) error {
	parameters, err := parseMetadataQuery(r.URL.RawQuery)
	if err != nil {
		return err
	}
	x := fhirserver.New(m.Base, fhirserver.Limits{ResponseBytes: m.Limit}, m.memoryShare(r), next, r)
	defer x.Share.Release()
	if slices.Contains(parameters, smart.Parameter{Name: "mode", Value: "terminology"}) {
		return x.Next.ServeHTTP(w, r)
	}
	if err := message.CheckFormat(r.Header, parameters); err != nil {
		return err
	}
	a, err := m.Handle(&x, message.NewGet("metadata", r.URL.RawQuery), r)
	if err != nil {
		return err
	}
	x.Share.ShrinkTo(int64(len(a.Body)))
	return a.Write(w, r)
}

// memoryShare returns the memory share of the request's network.
func (m *Metadata) memoryShare(r *http.Request) *fairmemory.Share {
	network := ""
	if m.Network != nil {
		network = m.Network(r)
	}
	return m.Memory.Share(fairmemory.Network(network))
}

// parseMetadataQuery parses the query of GET metadata and rejects parameters that R4 does not define for it.
func parseMetadataQuery(query string) ([]smart.Parameter, error) {
	parameters, err := smart.ParseParameters(query)
	if err != nil {
		return nil, message.InvalidRequest(err, "The query is ambiguous.")
	}
	if err := paging.RejectPagingLinks(parameters); err != nil {
		return nil, err
	}
	return parameters, message.CheckParameterNames("metadata", parameters, metadataParameters)
}

// Handle requests the FHIR server's statement and returns it with the changes.
func (m *Metadata) Handle(x *fhirserver.Server, c message.Call, r *http.Request) (*message.Response, error) {
	if _, err := parseMetadataQuery(c.Query); err != nil {
		return nil, err
	}
	a, err := x.Do(r.Context(), c)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"Location", "Content-Location"} { // these contain the FHIR server's own address
		a.Header.Del(name)
	}
	if a.Status == http.StatusOK && a.IsJSON() {
		err = m.adaptStatement(a, r)
	}
	return a, err
}

// metadataParameters are the parameters that R4 defines (http.html#capabilities, #parameters). With other parameters, a server
// that does not implement metadata could execute a search.
var metadataParameters = []string{"mode", "_format", "_pretty", "_summary", "_elements"}

// adaptStatement applies the changes to the statement in a, or replaces it by the cached result. A response that is not a
// CapabilityStatement passes only if it certainly contains no patient data, because no token is required.
func (m *Metadata) adaptStatement(a *message.Response, r *http.Request) error {
	changes := m.Changes
	if m.LocalOperations != nil {
		changes.LocalOperations = slices.Concat(changes.LocalOperations, m.LocalOperations(r))
	}
	of := sha256.Sum256(slices.Concat(a.Body, []byte{byte(len(changes.LocalOperations))}))
	cached, ok := m.findCached(of)
	if !ok {
		text, err := ApplyChanges(a.Body, changes)
		switch {
		case err != nil && hasNoPatientData(a.Body):
			return nil
		case err != nil:
			return message.NewWithheldError(err)
		}
		sum := sha256.Sum256(text)
		cached = cachedStatement{of, text, `W/"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`}
		m.addToCache(cached)
	}
	a.Body = cached.text
	a.Header.Set("Etag", cached.etag)
	a.Header.Del("Last-Modified")
	return nil
}

// hasNoPatientData reports whether text is a TerminologyCapabilities, or not FHIR: an object with neither
// resourceType nor entry.
func hasNoPatientData(text []byte) bool {
	if res, err := resource.Parse(text); err == nil {
		return res.Type == "TerminologyCapabilities"
	}
	c, hasType := rawjson.NewCursor(text), false
	err := c.Object(func(name []byte) error {
		hasType = hasType || strings.EqualFold(string(name), "resourceType") || strings.EqualFold(string(name), "entry")
		return c.Skip()
	})
	return err == nil && c.CheckEnd() == nil && !hasType
}

func (m *Metadata) findCached(of [sha256.Size]byte) (cachedStatement, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, statement := range m.cache {
		if statement.sourceHash == of {
			return statement, true
		}
	}
	return cachedStatement{}, false
}

func (m *Metadata) addToCache(s cachedStatement) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cache = append(m.cache[max(0, len(m.cache)+1-maxStatements):], s)
}

// Changes are the changes to the CapabilityStatement of a guarded FHIR server.
type Changes struct {
	// BaseURL is the public URL of the API, which replaces the FHIR server's. Default: the FHIR server's URL is unchanged.
	BaseURL string
	// OAuth are the endpoints of the authorization server. Default: not listed; nor are they listed if Token is empty.
	OAuth smart.OAuthURIs
	// CORS is true if browsers may call the API from other origins. Default: false.
	CORS bool
	// Operations are the permitted operations. Others are removed from the statement. Default: those of [operation.NewOperations].
	Operations operation.Operations
	// LocalOperations are operations that are answered in front of the FHIR server. Default: none.
	LocalOperations []LocalOperation
}

// LocalOperation is an operation that is answered in front of the FHIR server, as listed in a CapabilityStatement.
type LocalOperation struct {
	// Type is the resource type on which the operation is called.
	Type string
	// Name is the operation's name without the dollar sign.
	Name string
	// Definition is the canonical URL of the OperationDefinition.
	Definition string
}

// ErrInvalidStatement means that the text is not a valid CapabilityStatement, so it cannot be changed.
var ErrInvalidStatement = errors.New("text is not a CapabilityStatement")

// ApplyChanges returns statement with the changes. Unaffected parts stay unchanged, byte for byte.
func ApplyChanges(statement []byte, changes Changes) ([]byte, error) {
	res, err := resource.Parse(statement)
	if err != nil || res.Type != "CapabilityStatement" {
		return nil, errors.Join(ErrInvalidStatement, err)
	}
	e := capabilityEditor{Changes: changes}
	implementation, _ := res.Member("implementation")
	address, _ := resource.Field(implementation, "url")
	e.serverURL = strings.TrimSuffix(resource.Text(address), "/")
	return edits{
		{"url", e.rewriteAddress},
		{"implementation", edits{{"url", e.rewriteAddress}}.apply},
		{"format", filterFormats},
		{"patchFormat", editElements(dropNonJSON)},
		{"messaging", e.filterMessaging},
		{"rest", editElements(e.editRest)},
	}.apply(statement)
}

type capabilityEditor struct {
	Changes
	serverURL string // the FHIR server's own URL
}

// rewriteAddress replaces the FHIR server's own URL by the public one.
func (e capabilityEditor) rewriteAddress(value []byte) ([]byte, error) {
	text := resource.Text(value)
	rest, ok := strings.CutPrefix(text, e.serverURL)
	if e.BaseURL == "" || e.serverURL == "" || !ok || rest != "" && rest[0] != '/' {
		return value, nil
	}
	return json.Marshal(strings.TrimSuffix(e.BaseURL+rest, "/"))
}

// filterMessaging removes the messaging element, unless $process-message is permitted.
func (e capabilityEditor) filterMessaging(value []byte) ([]byte, error) {
	if _, ok := e.Operations.Find(interaction.Interaction{Operation: "$process-message"}); !ok {
		return nil, nil
	}
	return value, nil
}

// filterFormats removes all formats except JSON, because judged responses are JSON.
func filterFormats(value []byte) ([]byte, error) {
	jsonFormats, err := editElements(dropNonJSON)(value)
	if jsonFormats == nil && err == nil {
		jsonFormats = []byte(`["` + message.TypeJSON + `"]`)
	}
	return jsonFormats, err
}

func dropNonJSON(format []byte) ([]byte, error) {
	if strings.Contains(resource.Text(format), "json") {
		return format, nil
	}
	return nil, nil
}

// editRest edits an element of CapabilityStatement.rest.
func (e capabilityEditor) editRest(rest []byte) ([]byte, error) {
	if mode, _ := resource.Field(rest, "mode"); resource.Text(mode) != "server" {
		return rest, nil
	}
	rest, err := rawjson.WithMember(rest, "security", securityElement(e.OAuth, e.CORS))
	if err != nil {
		return nil, err
	}
	rest, err = edits{{"operation", e.operationFilter("")}, {"resource", editElements(e.editResource)}}.apply(rest)
	if err != nil {
		return nil, err
	}
	return e.addResources(rest)
}

// operationFilter returns an edit that removes the operations that are not permitted on a type, or on the system.
func (e capabilityEditor) operationFilter(resourceType string) edit {
	return editElements(func(operation []byte) ([]byte, error) {
		name, _ := resource.Field(operation, "name")
		operationName := "$" + strings.TrimPrefix(resource.Text(name), "$")
		if _, ok := e.Operations.Find(interaction.Interaction{Type: resourceType, Operation: operationName}); !ok {
			return nil, nil
		}
		return edits{{"definition", e.rewriteAddress}}.apply(operation)
	})
}

// editResource edits an element of CapabilityStatement.rest.resource.
func (e capabilityEditor) editResource(of []byte) ([]byte, error) {
	typ, _ := resource.Field(of, "type")
	resourceType := resource.Text(typ)
	of, err := edits{{"operation", e.operationFilter(resourceType)}}.apply(of)
	if err != nil {
		return nil, err
	}
	return e.addOperations(of, resourceType)
}

// addOperations adds the local operations of resourceType that are not listed yet.
func (e capabilityEditor) addOperations(of []byte, resourceType string) ([]byte, error) {
	existing, _ := resource.Field(of, "operation")
	operations := slices.Collect(elements(existing))
	before := len(operations)
	for _, local := range e.LocalOperations {
		if local.Type != resourceType || slices.ContainsFunc(operations, local.hasSameName) {
			continue
		}
		text, err := json.Marshal(map[string]string{"name": local.Name, "definition": local.Definition})
		if err != nil {
			return nil, err
		}
		operations = append(operations, text)
	}
	if len(operations) == before {
		return of, nil
	}
	return rawjson.WithMember(of, "operation", encodeArray(operations))
}

// hasSameName reports whether operation, an element of CapabilityStatement.rest.resource.operation, has o's name.
func (o LocalOperation) hasSameName(operation []byte) bool {
	name, _ := resource.Field(operation, "name")
	return strings.TrimPrefix(resource.Text(name), "$") == o.Name
}

// addResources adds the types that have local operations but are not listed yet.
func (e capabilityEditor) addResources(rest []byte) ([]byte, error) {
	existing, _ := resource.Field(rest, "resource")
	resources := slices.Collect(elements(existing))
	has := map[string]bool{}
	for _, of := range resources {
		typ, _ := resource.Field(of, "type")
		has[resource.Text(typ)] = true
	}
	before := len(resources)
	for _, local := range e.LocalOperations {
		if has[local.Type] {
			continue
		}
		has[local.Type] = true
		text, err := e.addOperations([]byte(`{"type":`+message.QuoteJSON(local.Type)+`}`), local.Type)
		if err != nil {
			return nil, err
		}
		resources = append(resources, text)
	}
	if len(resources) == before {
		return rest, nil
	}
	return rawjson.WithMember(rest, "resource", encodeArray(resources))
}

// TerminologyOperations returns the operations that a terminology service in front of the FHIR server answers: if all is false,
// only $expand.
func TerminologyOperations(all bool) []LocalOperation {
	operations := []LocalOperation{newLocalOperation("ValueSet", "expand")}
	if !all {
		return operations
	}
	return append(operations,
		newLocalOperation("ValueSet", "validate-code"), newLocalOperation("CodeSystem", "lookup"), newLocalOperation("CodeSystem", "subsumes"),
		newLocalOperation("CodeSystem", "validate-code"), newLocalOperation("ConceptMap", "translate"),
		LocalOperation{"ValueSet", "related", compareDefinition}, LocalOperation{"ValueSet", "compare", compareDefinition})
}

// compareDefinition is the OperationDefinition of ValueSet/$compare, formerly $related (HL7 terminology ecosystem IG).
const compareDefinition = "http://hl7.org/fhir/tools/OperationDefinition/ValueSet-compare"

func newLocalOperation(resourceType, name string) LocalOperation {
	return LocalOperation{resourceType, name, "http://hl7.org/fhir/OperationDefinition/" + resourceType + "-" + name}
}

// oauthURIs is the URL of the extension with the OAuth endpoints (SMART App Launch 1, which many clients still use).
const oauthURIs = "http://fhir-registry.smarthealthit.org/StructureDefinition/oauth-uris"

// extension is a FHIR Extension with either a URI or nested extensions.
type extension struct {
	URL       string      `json:"url"`
	ValueURI  string      `json:"valueUri,omitempty"`
	Extension []extension `json:"extension,omitempty"`
}

// securityElement returns CapabilityStatement.rest.security. It replaces the FHIR server's, which does not apply to clients.
func securityElement(o smart.OAuthURIs, cors bool) []byte {
	security := struct {
		Extension []extension `json:"extension,omitempty"`
		CORS      bool        `json:"cors"`
		Service   any         `json:"service"`
	}{oauthExtensions(o), cors, []any{map[string]any{
		"coding": []map[string]string{{
			"system": "http://terminology.hl7.org/CodeSystem/restful-security-service", "code": "SMART-on-FHIR", "display": "SMART-on-FHIR",
		}},
		"text": "OAuth2 using SMART-on-FHIR profile (see http://docs.smarthealthit.org)",
	}, map[string]any{
		"coding": []map[string]string{{"system": "http://profiles.ihe.net/fhir/ihe.securityTypes/CodeSystem/securityTypes", "code": "IUA"}}, // IHE ITI TF-1 34.1.1.3
		"text":   "IHE Internet User Authorization (see https://profiles.ihe.net/ITI/IUA)",
	}}}
	text, _ := json.Marshal(security) // marshaling strings never fails
	return text
}

// oauthExtensions returns the extension oauth-uris, or none if there is no token endpoint, because the extension requires one.
func oauthExtensions(o smart.OAuthURIs) []extension {
	if o.Token == "" {
		return nil
	}
	var uris []extension
	for _, u := range []extension{
		{URL: "authorize", ValueURI: o.Authorize}, {URL: "token", ValueURI: o.Token}, {URL: "register", ValueURI: o.Register},
		{URL: "manage", ValueURI: o.Manage}, {URL: "introspect", ValueURI: o.Introspect}, {URL: "revoke", ValueURI: o.Revoke},
	} {
		if u.ValueURI != "" {
			uris = append(uris, u)
		}
	}
	return []extension{{URL: oauthURIs, Extension: uris}}
}

// edit returns the new JSON for a value: value itself to leave it unchanged, nil to remove it.
type edit func(value []byte) ([]byte, error)

// edits are the edits of an object's members, by name.
type edits []struct {
	name string
	edit edit
}

// apply edits the existing members. Other members stay unchanged, byte for byte.
func (list edits) apply(object []byte) ([]byte, error) {
	for _, e := range list {
		value, ok := resource.Field(object, e.name)
		if !ok {
			continue
		}
		edited, err := e.edit(value)
		switch {
		case err != nil:
		case edited == nil:
			object, err = rawjson.WithoutMember(object, e.name)
		case !bytes.Equal(edited, value):
			object, err = rawjson.WithMember(object, e.name, edited)
		}
		if err != nil {
			return nil, err
		}
	}
	return object, nil
}

// editElements returns an edit that applies change to each element of an array. FHIR has no empty arrays, so it removes them.
func editElements(change edit) edit {
	return func(value []byte) ([]byte, error) {
		var remaining [][]byte
		changed := false
		for element := range elements(value) {
			edited, err := change(element)
			if err != nil {
				return nil, err
			}
			if edited != nil {
				remaining = append(remaining, edited)
			}
			changed = changed || !bytes.Equal(edited, element)
		}
		switch {
		case len(remaining) == 0:
			return nil, nil
		case !changed:
			return value, nil
		}
		return encodeArray(remaining), nil
	}
}

// elements returns the elements of an array; none if value is not an array.
func elements(value []byte) iter.Seq[[]byte] {
	if len(value) == 0 || value[0] != '[' {
		return func(func([]byte) bool) {}
	}
	return resource.Elements(value)
}

func encodeArray(elements [][]byte) []byte {
	return append(append([]byte{'['}, bytes.Join(elements, []byte{','})...), ']')
}
