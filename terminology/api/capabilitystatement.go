package api

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/caddy-fhir/caddy-fhir/terminology"
	"github.com/caddy-fhir/caddy-fhir/terminology/internal/fhirjson"
	"github.com/caddy-fhir/caddy-fhir/terminology/negotiation"
	"github.com/caddy-fhir/caddy-fhir/terminology/outcome"
	"github.com/caddy-fhir/caddy-fhir/terminology/parameters"
)

// TerminologyCapabilities serves [base]/metadata?mode=terminology. For responses and errors, see [Handler.Expand].
func (h *Handler) TerminologyCapabilities(w http.ResponseWriter, r *http.Request) error {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return &outcome.Error{Status: http.StatusMethodNotAllowed, Code: "not-supported", Text: "metadata supports only GET and HEAD"}
	}
	inputs, err := parameters.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return err
	}
	f, err := negotiate(r, inputs)
	if err != nil {
		return err
	}
	return f.write(w, r, capabilities(h.currentLibrary()).AppendJSON(nil))
}

// capabilities returns the TerminologyCapabilities of a library, including the registered operations.
func capabilities(l *terminology.Library) *terminology.Capabilities {
	c := l.Capabilities()
	for _, o := range registeredOperations {
		if o.Capability != "" {
			c.Operations = append(c.Operations, o.Capability)
		}
	}
	if _, ok := FindOperation("CodeSystem", "subsumes"); !ok {
		for i := range c.CodeSystems {
			c.CodeSystems[i].Subsumption = false
		}
	}
	return c
}

// CapabilityStatement serves [base]/metadata for deployments without another FHIR server. It lists $expand, the registered
// operations, and read and search of code systems and value sets. For responses and errors, see [Handler.Expand].
func (h *Handler) CapabilityStatement(w http.ResponseWriter, r *http.Request) error {
	inputs, _, f, err := searchInputs(r)
	if err != nil {
		return err
	}
	for i := range inputs {
		if mode := inputs[i].Value; inputs[i].Name == "mode" && mode != "full" && mode != "normative" {
			return outcome.BadRequest("invalid", "the parameter mode must be full, normative or terminology")
		}
	}
	return f.write(w, r, h.capabilityStatement(requestURL(r)))
}

// Versions serves [base]/$versions, which reports FHIR version 4.0. For responses and errors, see [Handler.Expand].
func (h *Handler) Versions(w http.ResponseWriter, r *http.Request) error {
	return h.serve(w, r, func(*Call, *terminology.Library, []parameters.Input) ([]byte, []outcome.MissingDefinition, error) {
		out := parameters.NewWriter(nil)
		out.Text("version", "valueString", "4.0")
		out.Text("default", "valueString", "4.0")
		return out.End(), nil, nil
	})
}

// restResource is an element of CapabilityStatement.rest.resource.
type restResource struct {
	kind        string
	interaction string
	operations  []Operation
}

// restResources returns the resource types with their interactions and operations.
func restResources() []restResource {
	list := []restResource{{kind: "CodeSystem", interaction: readAndSearch}, {kind: "ConceptMap"}, {kind: "ValueSet", interaction: readAndSearch, operations: []Operation{{Name: "expand"}}}}
	for _, o := range registeredOperations {
		if i := slices.IndexFunc(list, func(x restResource) bool { return x.kind == o.Type }); i >= 0 && !o.IsExtension {
			list[i].operations = append(list[i].operations, o)
		}
	}
	return slices.DeleteFunc(list, func(x restResource) bool { return x.interaction == "" && len(x.operations) == 0 })
}

// readAndSearch contains the members interaction and searchParam of rest.resource for types that support read and search.
const readAndSearch = `,"interaction":[{"code":"read"},{"code":"search-type"}],"searchParam":[` +
	`{"name":"_id","type":"token"},{"name":"identifier","type":"token"},{"name":"name","type":"string"},{"name":"status","type":"token"},` +
	`{"name":"title","type":"string"},{"name":"url","type":"uri"},{"name":"version","type":"token"}]`

// capabilityStatement returns the CapabilityStatement for the given metadata URL.
func (h *Handler) capabilityStatement(address string) []byte {
	dst := []byte(`{"resourceType":"CapabilityStatement","extension":[`)
	dst = append(appendFeature(dst, "tx-tests/FeatureDefinition/test-version", `"valueCode":"`+testSuiteVersion+`"`), ',')
	dst = append(appendFeature(dst, "tx-ecosystem/FeatureDefinition/CodeSystemAsParameter", `"valueBoolean":true`), ']')
	dst = fhirjson.AppendMember(dst, "url", address)
	dst = append(dst, `,"version":"1","name":"TerminologyService","title":"Terminology service","status":"active","date":"`...)
	dst = append(h.currentLibrary().Definitions().Loaded.AppendFormat(dst, time.RFC3339), `","kind":"instance"`...)
	dst = append(dst, `,"instantiates":["http://hl7.org/fhir/CapabilityStatement/terminology-server"],"software":{"name":"caddy-fhir"`...)
	dst = fhirjson.AppendMember(dst, "version", h.Statement.Version)
	if !h.Statement.Released.IsZero() {
		dst = fhirjson.AppendMember(dst, "releaseDate", h.Statement.Released.UTC().Format(time.DateOnly))
	}
	dst = append(dst, `},"implementation":{"description":"Terminology service from definitions in memory"`...)
	dst = append(fhirjson.AppendMember(dst, "url", strings.TrimSuffix(address, "/metadata")), '}')
	dst = append(append(dst, `,"fhirVersion":"4.0.1","format":`...), supportedFormats()...)
	dst = append(dst, `,"rest":[{"mode":"server"`...)
	dst = h.appendSecurity(dst)
	list := fhirjson.Array{Name: "resource"}
	for _, x := range restResources() {
		dst = x.append(list.Next(dst))
	}
	dst = append(list.End(dst), `,"operation":[{"name":"versions","definition":"http://hl7.org/fhir/OperationDefinition/CapabilityStatement-versions"}]`...)
	return append(dst, `}]}`...)
}

// supportedFormats returns the formats that this build supports.
func supportedFormats() string {
	if negotiation.HasXML() {
		return `["application/fhir+json","application/fhir+xml","json","xml"]`
	}
	return `["application/fhir+json","json"]`
}

// appendSecurity appends rest.security, which the HL7 terminology ecosystem IG requires.
func (h *Handler) appendSecurity(dst []byte) []byte {
	if len(h.Statement.Security) == 0 {
		return dst
	}
	begin := `,"security":{"service":[`
	for _, code := range h.Statement.Security {
		dst = append(dst, begin+`{"coding":[{"system":"http://terminology.hl7.org/CodeSystem/restful-security-service","code":`...)
		dst = append(fhirjson.AppendString(dst, code), `}]}`...)
		begin = ","
	}
	return append(dst, `]}`...)
}

// testSuiteVersion is the version of the HL7 terminology ecosystem tests that this package passes.
const testSuiteVersion = "1.9.3"

// appendFeature appends the extension that declares a feature of the HL7 terminology ecosystem IG.
func appendFeature(dst []byte, definition, value string) []byte {
	return append(dst, `{"url":"http://hl7.org/fhir/uv/application-feature/StructureDefinition/feature","extension":[{"url":"definition","valueCanonical":"http://hl7.org/fhir/uv/`+
		definition+`"},{"url":"value",`+value+`}]}`...)
}

func (x *restResource) append(dst []byte) []byte {
	dst = append(dst, `{"type":"`+x.kind+`"`+x.interaction...)
	operations := fhirjson.Array{Name: "operation"}
	for _, o := range x.operations {
		definition := cmp.Or(o.Definition, "http://hl7.org/fhir/OperationDefinition/"+x.kind+"-"+o.Name)
		dst = append(operations.Next(dst), `{"name":"`+o.Name+`","definition":"`+definition+`"}`...)
	}
	return append(operations.End(dst), '}')
}
