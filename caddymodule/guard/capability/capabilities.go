package capability

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/operation"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/internal/rawjson"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
)

// Changes are what the CapabilityStatement of a FHIR server has to say once the server is guarded.
type Changes struct {
	// BaseURL is the URL that clients know the API by, and takes the place of the server's own. Empty: that stays.
	BaseURL string
	// OAuth are the endpoints of the authorization server. Without Token none is told.
	OAuth smart.OAuthURIs
	// CORS says that browsers may call the API from other origins.
	CORS bool
	// Operations are those that may be called. Those of the server that may not are not told. Nil: those of
	// [NewOperations].
	Operations operation.Operations
	// Answered are operations that are answered before the server is asked.
	Answered []AnsweredOperation
}

// AnsweredOperation is an operation in a CapabilityStatement.
type AnsweredOperation struct {
	// Type is the resource type on which it is called.
	Type string
	// Name is the name without the dollar sign.
	Name string
	// Definition is the canonical URL of its OperationDefinition.
	Definition string
}

// ErrCapabilities says that a text is no CapabilityStatement that can be changed.
var ErrCapabilities = errors.New("no CapabilityStatement")

// Capabilities returns a CapabilityStatement with the changes. What they do not concern stays, byte for byte.
func Capabilities(statement []byte, changes Changes) ([]byte, error) {
	res, err := resource.Parse(statement)
	if err != nil || res.Type != "CapabilityStatement" {
		return nil, errors.Join(ErrCapabilities, err)
	}
	e := capabilityEditor{Changes: changes}
	implementation, _ := res.Member("implementation")
	address, _ := resource.Field(implementation, "url")
	e.from = strings.TrimSuffix(resource.Text(address), "/")
	return edits{
		{"url", e.address},
		{"implementation", edits{{"url", e.address}}.apply},
		{"format", formats},
		{"patchFormat", each(onlyJSON)},
		{"messaging", e.messaging},
		{"rest", each(e.rest)},
	}.apply(statement)
}

// capabilityEditor changes a CapabilityStatement.
type capabilityEditor struct {
	Changes
	from string // the server's address of itself
}

// address is an address of the server's as clients know it.
func (e capabilityEditor) address(value []byte) ([]byte, error) {
	text := resource.Text(value)
	rest, ok := strings.CutPrefix(text, e.from)
	if e.BaseURL == "" || e.from == "" || !ok || rest != "" && rest[0] != '/' {
		return value, nil
	}
	return json.Marshal(strings.TrimSuffix(e.BaseURL+rest, "/"))
}

// messaging leaves out what a server says of messages, unless they may be sent.
func (e capabilityEditor) messaging(value []byte) ([]byte, error) {
	if _, ok := e.Operations.Find(interaction.Interaction{Operation: "$process-message"}); !ok {
		return nil, nil
	}
	return value, nil
}

// formats leaves of the formats those that every token can have: what is judged is in JSON.
func formats(value []byte) ([]byte, error) {
	kept, err := each(onlyJSON)(value)
	if kept == nil && err == nil {
		kept = []byte(`["` + message.TypeJSON + `"]`)
	}
	return kept, err
}

func onlyJSON(format []byte) ([]byte, error) {
	if strings.Contains(resource.Text(format), "json") {
		return format, nil
	}
	return nil, nil
}

// rest changes an element of CapabilityStatement.rest.
func (e capabilityEditor) rest(rest []byte) ([]byte, error) {
	if mode, _ := resource.Field(rest, "mode"); resource.Text(mode) != "server" {
		return rest, nil
	}
	rest, err := rawjson.With(rest, "security", security(e.OAuth, e.CORS))
	if err != nil {
		return nil, err
	}
	rest, err = edits{{"operation", e.operations("")}, {"resource", each(e.resource)}}.apply(rest)
	if err != nil {
		return nil, err
	}
	return e.addResources(rest)
}

// operations leaves of the operations on a type, or on the system, those that may be called.
func (e capabilityEditor) operations(resourceType string) edit {
	return each(func(operation []byte) ([]byte, error) {
		name, _ := resource.Field(operation, "name")
		called := "$" + strings.TrimPrefix(resource.Text(name), "$")
		if _, ok := e.Operations.Find(interaction.Interaction{Type: resourceType, Operation: called}); !ok {
			return nil, nil
		}
		return edits{{"definition", e.address}}.apply(operation)
	})
}

// resource changes an element of CapabilityStatement.rest.resource.
func (e capabilityEditor) resource(of []byte) ([]byte, error) {
	typ, _ := resource.Field(of, "type")
	resourceType := resource.Text(typ)
	of, err := edits{{"operation", e.operations(resourceType)}}.apply(of)
	if err != nil {
		return nil, err
	}
	return e.addOperations(of, resourceType)
}

// addOperations adds those that are answered before the server, unless it has them too.
func (e capabilityEditor) addOperations(of []byte, resourceType string) ([]byte, error) {
	listed, _ := resource.Field(of, "operation")
	operations := slices.Collect(elements(listed))
	before := len(operations)
	for _, answered := range e.Answered {
		if answered.Type != resourceType || slices.ContainsFunc(operations, answered.isNamed) {
			continue
		}
		text, err := json.Marshal(map[string]string{"name": answered.Name, "definition": answered.Definition})
		if err != nil {
			return nil, err
		}
		operations = append(operations, text)
	}
	if len(operations) == before {
		return of, nil
	}
	return rawjson.With(of, "operation", array(operations))
}

// isNamed reports whether an element of operation has the same name.
func (o AnsweredOperation) isNamed(operation []byte) bool {
	name, _ := resource.Field(operation, "name")
	return strings.TrimPrefix(resource.Text(name), "$") == o.Name
}

// addResources adds the types of which only operations are answered.
func (e capabilityEditor) addResources(rest []byte) ([]byte, error) {
	listed, _ := resource.Field(rest, "resource")
	resources := slices.Collect(elements(listed))
	has := map[string]bool{}
	for _, of := range resources {
		typ, _ := resource.Field(of, "type")
		has[resource.Text(typ)] = true
	}
	before := len(resources)
	for _, answered := range e.Answered {
		if has[answered.Type] {
			continue
		}
		has[answered.Type] = true
		text, err := e.addOperations([]byte(`{"type":`+message.Quoted(answered.Type)+`}`), answered.Type)
		if err != nil {
			return nil, err
		}
		resources = append(resources, text)
	}
	if len(resources) == before {
		return rest, nil
	}
	return rawjson.With(rest, "resource", array(resources))
}

// TerminologyOperations are those that a terminology service before the FHIR server answers: $expand alone, or all.
func TerminologyOperations(all bool) []AnsweredOperation {
	answered := []AnsweredOperation{answeredOn("ValueSet", "expand")}
	if !all {
		return answered
	}
	return append(answered,
		answeredOn("ValueSet", "validate-code"), answeredOn("CodeSystem", "lookup"), answeredOn("CodeSystem", "subsumes"),
		answeredOn("CodeSystem", "validate-code"), answeredOn("ConceptMap", "translate"))
}

func answeredOn(resourceType, name string) AnsweredOperation {
	return AnsweredOperation{resourceType, name, "http://hl7.org/fhir/OperationDefinition/" + resourceType + "-" + name}
}

// oauthURIs is the extension that tells apps the endpoints (SMART App Launch 1, still read by many).
const oauthURIs = "http://fhir-registry.smarthealthit.org/StructureDefinition/oauth-uris"

// extension is an Extension with a URI, or with more of its kind.
type extension struct {
	URL       string      `json:"url"`
	ValueURI  string      `json:"valueUri,omitempty"`
	Extension []extension `json:"extension,omitempty"`
}

// security is CapabilityStatement.rest.security. What the server says of its own security is about others than clients.
func security(o smart.OAuthURIs, cors bool) []byte {
	security := struct {
		Extension []extension `json:"extension,omitempty"`
		CORS      bool        `json:"cors"`
		Service   any         `json:"service"`
	}{extensionsOf(o), cors, []any{map[string]any{
		"coding": []map[string]string{{
			"system": "http://terminology.hl7.org/CodeSystem/restful-security-service", "code": "SMART-on-FHIR", "display": "SMART-on-FHIR",
		}},
		"text": "OAuth2 using SMART-on-FHIR profile (see http://docs.smarthealthit.org)",
	}, map[string]any{
		"coding": []map[string]string{{"system": "http://profiles.ihe.net/fhir/ihe.securityTypes/CodeSystem/securityTypes", "code": "IUA"}}, // IHE ITI TF-1 34.1.1.3
		"text":   "IHE Internet User Authorization (see https://profiles.ihe.net/ITI/IUA)",
	}}}
	text, _ := json.Marshal(security) // strings never fail
	return text
}

// extensions is the extension oauth-uris, which must have a token endpoint.
func extensionsOf(o smart.OAuthURIs) []extension {
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
