// Package interaction determines the FHIR R4 REST interaction of a request from its method, path, query and header, and the
// permissions of SMART scopes that the interaction requires. [Parse] parses a request:
//
//	path below the base          GET               POST               PUT                PATCH             DELETE
//	(empty)                      SystemSearch      Bundle
//	metadata                     Capabilities
//	_history                     SystemHistory
//	_search                                        SystemSearch
//	$operation                   Operation         Operation
//	Type                         TypeSearch        Create ¹           ConditionalUpdate  ConditionalPatch  ConditionalDelete
//	Type/_history                TypeHistory
//	Type/_search                                   TypeSearch
//	Type/$operation              Operation         Operation
//	Type/id                      Read                                 Update             Patch             Delete
//	Type/id/_history             InstanceHistory
//	Type/id/_history/vid         VRead
//	Type/id/$operation           Operation         Operation
//	Patient/id/*                 CompartmentSearch
//	Patient/id/_search                             CompartmentSearch
//	Patient/id/Type              CompartmentSearch
//	Patient/id/Type/_search                        CompartmentSearch
//
// ¹ With If-None-Exist, it is ConditionalCreate. The other conditional interactions require criteria in the query.
//
// Patient represents the five types that have a compartment: Device, Encounter, Patient, Practitioner and RelatedPerson. HEAD
// is parsed like GET. All other requests are errors: 404 for a path and 405 for a method that is not in the table, 400 for an
// ambiguous query. This includes extensions of some servers that R4 does not define, such as GET Type/_search, a trailing
// slash, and operations on a version of a resource. Only R4's types are accepted; server-specific types are not.
//
// The parameters of a request are decoded once and otherwise unchanged. This package does not check whether they are allowed.
//
// References: FHIR R4 http.html, search.html and compartmentdefinition.html (https://hl7.org/fhir/R4); SMART App Launch 2.2.0,
// "Scopes for Requesting FHIR Resources".
package interaction

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

// Reference identifies a resource on the server.
type Reference struct {
	// Type is a resource type.
	Type string
	// ID is the logical id.
	ID string
}

// String returns the relative reference, e.g. Patient/1.
func (r Reference) String() string { return r.Type + "/" + r.ID }

// Interaction is a request of FHIR's REST API, as returned by [Parse].
type Interaction struct {
	// Kind is the kind of interaction.
	Kind Kind
	// Type is the resource type in the path; may be empty. For a [CompartmentSearch], it is the searched type; "*" for all.
	Type string
	// ID is the logical id in the path; empty if the path has none or it is the id of a compartment.
	ID string
	// VersionID is the version requested by a [VRead].
	VersionID string
	// Compartment is the compartment of a [CompartmentSearch].
	Compartment Reference
	// Operation is the name of an [Operation] with the dollar sign, such as $everything.
	Operation string
	// Parameters are the decoded query parameters in order, followed by the form of a search or the criteria of a
	// [ConditionalCreate].
	Parameters []smart.Parameter
	// IsAsync is true if the client requests an asynchronous response (R4 async.html).
	IsAsync bool
}

// Kind is a kind of interaction. The zero value is not a valid kind.
type Kind uint8

// Interactions of FHIR R4 (http.html#summary). Conditional interactions have separate kinds.
const (
	// Capabilities is GET metadata.
	Capabilities Kind = iota + 1
	// Read is GET Type/id.
	Read
	// VRead is GET Type/id/_history/vid.
	VRead
	// InstanceHistory is GET Type/id/_history.
	InstanceHistory
	// TypeHistory is GET Type/_history.
	TypeHistory
	// SystemHistory is GET _history.
	SystemHistory
	// TypeSearch is GET Type or POST Type/_search.
	TypeSearch
	// SystemSearch is GET of the base or POST _search.
	SystemSearch
	// CompartmentSearch is GET Patient/id/Type or Patient/id/*, or POST with _search after the Type or instead of the asterisk.
	CompartmentSearch
	// Create is POST Type.
	Create
	// ConditionalCreate is POST Type with the If-None-Exist header.
	ConditionalCreate
	// Update is PUT Type/id. It may create the resource.
	Update
	// ConditionalUpdate is PUT Type with criteria.
	ConditionalUpdate
	// Patch is PATCH Type/id.
	Patch
	// ConditionalPatch is PATCH Type with criteria.
	ConditionalPatch
	// Delete is DELETE Type/id.
	Delete
	// ConditionalDelete is DELETE Type with criteria.
	ConditionalDelete
	// Bundle is POST to the base: a batch or a transaction, depending on its body.
	Bundle
	// Operation is GET or POST of a $name after the base, a Type or a Type/id.
	Operation
)

// kindNames are the codes in a CapabilityStatement (R4 valueset-restful-interaction.html), if there is one.
var kindNames = [...]string{
	Capabilities:      "capabilities",
	Read:              "read",
	VRead:             "vread",
	InstanceHistory:   "history-instance",
	TypeHistory:       "history-type",
	SystemHistory:     "history-system",
	TypeSearch:        "search-type",
	SystemSearch:      "search-system",
	CompartmentSearch: "search-compartment",
	Create:            "create",
	ConditionalCreate: "conditional-create",
	Update:            "update",
	ConditionalUpdate: "conditional-update",
	Patch:             "patch",
	ConditionalPatch:  "conditional-patch",
	Delete:            "delete",
	ConditionalDelete: "conditional-delete",
	Bundle:            "bundle",
	Operation:         "operation",
}

// String returns the kind's code in a CapabilityStatement, or a similar name if it has none.
func (k Kind) String() string {
	if k == 0 || int(k) >= len(kindNames) {
		return "unknown"
	}
	return kindNames[k]
}

// permissions is the table of SMART App Launch 2.2 ("Scopes for requesting FHIR Resources"). Conditional interactions also
// require Search, because their responses reveal the matches.
var permissions = [...]smart.Permission{
	Read:              smart.Read,
	VRead:             smart.Read,
	InstanceHistory:   smart.Read,
	TypeHistory:       smart.Search,
	SystemHistory:     smart.Search,
	TypeSearch:        smart.Search,
	SystemSearch:      smart.Search,
	CompartmentSearch: smart.Search,
	Create:            smart.Create,
	ConditionalCreate: smart.Create | smart.Search,
	Update:            smart.Update,
	ConditionalUpdate: smart.Update | smart.Search,
	Patch:             smart.Update,
	ConditionalPatch:  smart.Update | smart.Search,
	Delete:            smart.Delete,
	ConditionalDelete: smart.Delete | smart.Search,
	Operation:         0,
}

// Permission returns the permissions that the scopes must grant on the type. It is 0 if other rules apply: capabilities are
// public, an operation's permissions depend on its name, and a bundle's on its entries.
func (i Interaction) Permission() smart.Permission {
	if int(i.Kind) >= len(permissions) {
		return 0
	}
	return permissions[i.Kind]
}

// Path returns the path below the base, without leading or trailing slashes. It doesn't need encoding in a URL.
func (i Interaction) Path() string {
	switch i.Kind {
	case Capabilities:
		return "metadata"
	case TypeSearch:
		return i.Type
	case CompartmentSearch:
		return i.Compartment.String() + "/" + i.Type
	case SystemHistory, TypeHistory, InstanceHistory:
		return joinPath(i.Type, i.ID, "_history")
	case VRead:
		return joinPath(i.Type, i.ID, "_history", i.VersionID)
	default:
		return joinPath(i.Type, i.ID, i.Operation)
	}
}

// joinPath is like path.Join, but requires segments that are clean or empty.
func joinPath(segments ...string) string {
	path := ""
	for _, segment := range segments {
		if path != "" && segment != "" {
			path += "/"
		}
		path += segment
	}
	return path
}

// typeNames are the resource types of FHIR R4 (resourcelist.html), without the abstract types Resource and DomainResource.
const typeNames = `
Account ActivityDefinition AdverseEvent AllergyIntolerance Appointment AppointmentResponse AuditEvent Basic Binary
BiologicallyDerivedProduct BodyStructure Bundle CapabilityStatement CarePlan CareTeam CatalogEntry ChargeItem
ChargeItemDefinition Claim ClaimResponse ClinicalImpression CodeSystem Communication CommunicationRequest
CompartmentDefinition Composition ConceptMap Condition Consent Contract Coverage CoverageEligibilityRequest
CoverageEligibilityResponse DetectedIssue Device DeviceDefinition DeviceMetric DeviceRequest DeviceUseStatement
DiagnosticReport DocumentManifest DocumentReference EffectEvidenceSynthesis Encounter Endpoint EnrollmentRequest
EnrollmentResponse EpisodeOfCare EventDefinition Evidence EvidenceVariable ExampleScenario ExplanationOfBenefit
FamilyMemberHistory Flag Goal GraphDefinition Group GuidanceResponse HealthcareService ImagingStudy Immunization
ImmunizationEvaluation ImmunizationRecommendation ImplementationGuide InsurancePlan Invoice Library Linkage List Location
Measure MeasureReport Media Medication MedicationAdministration MedicationDispense MedicationKnowledge MedicationRequest
MedicationStatement MedicinalProduct MedicinalProductAuthorization MedicinalProductContraindication
MedicinalProductIndication MedicinalProductIngredient MedicinalProductInteraction MedicinalProductManufactured
MedicinalProductPackaged MedicinalProductPharmaceutical MedicinalProductUndesirableEffect MessageDefinition MessageHeader
MolecularSequence NamingSystem NutritionOrder Observation ObservationDefinition OperationDefinition OperationOutcome
Organization OrganizationAffiliation Parameters Patient PaymentNotice PaymentReconciliation Person PlanDefinition
Practitioner PractitionerRole Procedure Provenance Questionnaire QuestionnaireResponse RelatedPerson RequestGroup
ResearchDefinition ResearchElementDefinition ResearchStudy ResearchSubject RiskAssessment RiskEvidenceSynthesis Schedule
SearchParameter ServiceRequest Slot Specimen SpecimenDefinition StructureDefinition StructureMap Subscription Substance
SubstanceNucleicAcid SubstancePolymer SubstanceProtein SubstanceReferenceInformation SubstanceSourceMaterial
SubstanceSpecification SupplyDelivery SupplyRequest Task TerminologyCapabilities TestReport TestScript ValueSet
VerificationResult VisionPrescription`

var resourceTypes = newSet(typeNames)

// compartments are the types with a CompartmentDefinition (R4 compartmentdefinition.html).
var compartments = newSet("Device Encounter Patient Practitioner RelatedPerson")

func newSet(words string) map[string]bool {
	set := make(map[string]bool)
	for word := range strings.FieldsSeq(words) {
		set[word] = true
	}
	return set
}

// Types returns the resource types of FHIR R4 in alphabetical order.
func Types() []string { return strings.Fields(typeNames) }

// IsType reports whether name is a resource type of FHIR R4.
func IsType(name string) bool { return resourceTypes[name] }

func isCompartment(name string) bool { return compartments[name] }

// Errors of [Parse]. They contain no part of the request, which may include patient data.
var (
	// errUnknownPath: FHIR does not define the path (R4 http.html#summary), 404.
	errUnknownPath = errors.New("unknown path of the FHIR REST API")
	// errUnknownType: FHIR R4 does not define the resource type in the path (resourcelist.html), 404.
	errUnknownType = errors.New("unknown resource type")
	// errMalformedID: an id or version id does not consist of 1 to 64 letters, digits, hyphens and dots (R4 datatypes.html#id),
	// or is a dot segment (RFC 3986 §3.3), 404.
	errMalformedID = errors.New("malformed resource id or version id")
	// errUndefinedMethod: FHIR defines no interaction with this method for the path (RFC 9110 §15.5.6), 405.
	errUndefinedMethod = errors.New("method not supported for this path")
	// errAmbiguousQuery: the query or form is ambiguous, or contains parameters that the interaction does not support, 400.
	errAmbiguousQuery = errors.New("ambiguous or unsupported query parameters")
	// errMissingCriteria: a conditional interaction has no criteria, or several sets of them (R4 http.html#ccreate, #cond-update,
	// #3.1.0.7.1), 400.
	errMissingCriteria = errors.New("conditional request has no criteria, or more than one set")
	// errUnexpectedForm: an interaction other than a search has a form (R4 http.html#search), 400.
	errUnexpectedForm = errors.New("a form is only allowed in a search")
)

// Status returns the HTTP status for an error of this package.
func Status(err error) int {
	switch {
	case errors.Is(err, errUnknownPath), errors.Is(err, errUnknownType), errors.Is(err, errMalformedID):
		return http.StatusNotFound
	case errors.Is(err, errUndefinedMethod):
		return http.StatusMethodNotAllowed
	default:
		return http.StatusBadRequest
	}
}

// kindsByPath contains the interactions of R4's summary (http.html#summary) by path form and method.
var kindsByPath = map[pathForm]map[string]Kind{
	systemPath:            {http.MethodGet: SystemSearch, http.MethodPost: Bundle},
	metadataPath:          {http.MethodGet: Capabilities},
	systemHistoryPath:     {http.MethodGet: SystemHistory},
	systemSearchPath:      {http.MethodPost: SystemSearch},
	typeHistoryPath:       {http.MethodGet: TypeHistory},
	typeSearchPath:        {http.MethodPost: TypeSearch},
	instanceHistoryPath:   {http.MethodGet: InstanceHistory},
	versionPath:           {http.MethodGet: VRead},
	compartmentPath:       {http.MethodGet: CompartmentSearch},
	compartmentSearchPath: {http.MethodPost: CompartmentSearch},
	operationPath:         {http.MethodGet: Operation, http.MethodPost: Operation},
	typePath: {
		http.MethodGet:    TypeSearch,
		http.MethodPost:   Create,
		http.MethodPut:    ConditionalUpdate,
		http.MethodPatch:  ConditionalPatch,
		http.MethodDelete: ConditionalDelete,
	},
	instancePath: {
		http.MethodGet:    Read,
		http.MethodPut:    Update,
		http.MethodPatch:  Patch,
		http.MethodDelete: Delete,
	},
}

// Parse returns the interaction of a request. path is decoded, relative to the FHIR base, and has no leading or trailing
// slashes; query is as sent. HEAD is handled like GET. Method override headers are ignored. Ambiguous requests cause an error
// of this package; [Status] returns its HTTP status.
func Parse(method, path, query string, header http.Header) (Interaction, error) {
	var i Interaction
	at, err := i.parsePath(path)
	if err != nil {
		return Interaction{}, err
	}
	if method == http.MethodHead {
		method = http.MethodGet
	}
	kind, ok := kindsByPath[at][method]
	if !ok {
		return Interaction{}, errUndefinedMethod
	}
	i.Kind, i.IsAsync = kind, prefersAsync(header)
	if i.Parameters, err = smart.ParseParameters(query); err != nil {
		return Interaction{}, fmt.Errorf("%w: %w", errAmbiguousQuery, err)
	}
	switch kind { // If-None-Exist affects only a create
	case Create:
		err = i.makeCreateConditional(header.Values("If-None-Exist"))
	case ConditionalUpdate, ConditionalPatch, ConditionalDelete:
		if !hasCriteria(i.Parameters) {
			err = errMissingCriteria
		}
	}
	if err != nil {
		return Interaction{}, err
	}
	return i, nil
}

// WithForm appends the form of a search by POST to the parameters of its query, because servers accept both (R4
// http.html#search).
func (i Interaction) WithForm(body string) (Interaction, error) {
	switch i.Kind {
	case TypeSearch, SystemSearch, CompartmentSearch:
	default:
		return Interaction{}, errUnexpectedForm
	}
	form, err := smart.ParseParameters(body)
	if err != nil {
		return Interaction{}, fmt.Errorf("%w: %w", errAmbiguousQuery, err)
	}
	i.Parameters = slices.Concat(i.Parameters, form)
	return i, nil
}

// prefersAsync reports whether Prefer contains respond-async (RFC 7240 §4.1). Some servers also accept semicolons as
// separators, so they are accepted here too; if the response is synchronous nevertheless, it is judged.
func prefersAsync(header http.Header) bool {
	for _, line := range header.Values("Prefer") {
		for preference := range strings.FieldsFuncSeq(line, func(r rune) bool { return r == ',' || r == ';' }) {
			name, _, _ := strings.Cut(preference, "=")
			if strings.EqualFold(strings.TrimSpace(name), "respond-async") {
				return true
			}
		}
	}
	return false
}

// pathForm is the form of a path. Together with the method, it determines the interaction.
type pathForm uint8

const (
	systemPath pathForm = iota + 1
	metadataPath
	systemHistoryPath
	systemSearchPath
	typePath
	typeHistoryPath
	typeSearchPath
	instancePath
	instanceHistoryPath
	versionPath
	compartmentPath
	compartmentSearchPath
	operationPath
)

// parsePath parses a path below the base into i. Each path has exactly one form, because ids and types contain no underscores,
// dollar signs or asterisks and are not empty.
func (i *Interaction) parsePath(path string) (pathForm, error) {
	switch path {
	case "":
		return systemPath, nil
	case "metadata":
		return metadataPath, nil
	case "_history":
		return systemHistoryPath, nil
	case "_search":
		return systemSearchPath, nil
	}
	if i.parseOperation(path) {
		return operationPath, nil
	}
	typ, rest, hasMore := strings.Cut(path, "/")
	if !IsType(typ) {
		return 0, firstSegmentError(typ)
	}
	i.Type = typ
	if !hasMore {
		return typePath, nil
	}
	return i.parseTypePath(rest)
}

// firstSegmentError returns the error for an unknown segment: errUnknownType if it has the syntax of a resource type.
func firstSegmentError(segment string) error {
	if segment == "" || segment[0] < 'A' || segment[0] > 'Z' {
		return errUnknownPath
	}
	return errUnknownType
}

func (i *Interaction) parseTypePath(path string) (pathForm, error) {
	switch {
	case path == "_history":
		return typeHistoryPath, nil
	case path == "_search":
		return typeSearchPath, nil
	case i.parseOperation(path):
		return operationPath, nil
	}
	id, rest, hasMore := strings.Cut(path, "/")
	if !IsID(id) {
		return 0, errMalformedID
	}
	i.ID = id
	if !hasMore {
		return instancePath, nil
	}
	return i.parseInstancePath(rest)
}

func (i *Interaction) parseInstancePath(path string) (pathForm, error) {
	version, isVersion := strings.CutPrefix(path, "_history/")
	switch {
	case path == "_history":
		return instanceHistoryPath, nil
	case i.parseOperation(path):
		return operationPath, nil
	case !isVersion:
		return i.parseCompartmentPath(path)
	case strings.Contains(version, "/"):
		return 0, errUnknownPath
	case !IsID(version):
		return 0, errMalformedID
	}
	i.VersionID = version
	return versionPath, nil
}

// parseCompartmentPath parses the path after the id of a compartment. The searched type replaces the compartment's type in i.
func (i *Interaction) parseCompartmentPath(path string) (pathForm, error) {
	if !isCompartment(i.Type) {
		return 0, errUnknownPath
	}
	i.Compartment = Reference{Type: i.Type, ID: i.ID}
	i.Type, i.ID = "*", ""
	switch path {
	case "*":
		return compartmentPath, nil
	case "_search":
		return compartmentSearchPath, nil
	}
	typ, isPost := strings.CutSuffix(path, "/_search")
	switch {
	case strings.Contains(typ, "/"):
		return 0, errUnknownPath
	case !IsType(typ):
		return 0, firstSegmentError(typ)
	}
	i.Type = typ
	if isPost {
		return compartmentSearchPath, nil
	}
	return compartmentPath, nil
}

// parseOperation parses a segment that is the name of an operation. Names that R4 does not define can contain dots and
// underscores, e.g. HAPI's $hapi.fhir.replace-references.
func (i *Interaction) parseOperation(segment string) bool {
	name, ok := strings.CutPrefix(segment, "$")
	if !ok || name == "" || strings.ContainsFunc(name, func(r rune) bool { return r != '_' && !isIDRune(r) }) {
		return false
	}
	i.Operation = segment
	return true
}

// IsID reports whether a text is a FHIR id (FHIR R4 §2.24.0.1) that is safe as a segment of a path.
func IsID(s string) bool {
	return s != "" && len(s) <= 64 && s != "." && s != ".." &&
		!strings.ContainsFunc(s, func(r rune) bool { return !isIDRune(r) })
}

func isIDRune(r rune) bool {
	return 'A' <= r && r <= 'Z' || 'a' <= r && r <= 'z' || '0' <= r && r <= '9' || r == '-' || r == '.'
}

// makeCreateConditional makes a create with If-None-Exist conditional. It adds the criteria, which are a query without the
// question mark (R4 http.html#ccreate). Criteria in the URL of a create are rejected: some servers apply them, others ignore
// them and create the resource.
func (i *Interaction) makeCreateConditional(criteria []string) error {
	if slices.ContainsFunc(i.Parameters, isSpecificParameter) {
		return errAmbiguousQuery
	}
	if len(criteria) == 0 {
		return nil
	}
	list, err := smart.ParseParameters(criteria[0])
	if err != nil {
		return fmt.Errorf("%w: %w", errAmbiguousQuery, err)
	}
	if len(criteria) > 1 || !hasCriteria(list) || slices.ContainsFunc(list, isFormatParameter) {
		return errMissingCriteria
	}
	i.Kind = ConditionalCreate
	i.Parameters = append(i.Parameters, list...)
	return nil
}

// Criteria returns the parameters that select resources. It omits the parameters for the format of the response (_format,
// _pretty, _summary and _elements).
func (i Interaction) Criteria() []smart.Parameter {
	return slices.DeleteFunc(slices.Clone(i.Parameters), isFormatParameter)
}

// hasCriteria reports whether a parameter selects resources. If none did, a conditional delete would delete all resources of
// its type. Parameters with blank values are ignored, because servers ignore them.
func hasCriteria(list []smart.Parameter) bool {
	return slices.ContainsFunc(list, func(p smart.Parameter) bool { return isCriterion(p.Name) && !isBlank(p.Value) })
}

func isBlank(value string) bool {
	return !strings.ContainsFunc(value, func(r rune) bool { return r != ',' && !unicode.IsSpace(r) && !unicode.IsControl(r) })
}

// isCriterion reports whether a parameter selects resources. Other parameters that begin with an underscore affect the response
// (R4 search.html).
func isCriterion(name string) bool {
	baseName, _, _ := strings.Cut(name, ":")
	switch baseName {
	case "_content", "_filter", "_has", "_id", "_lastUpdated", "_list", "_profile", "_query", "_security", "_source",
		"_tag", "_text":
		return true
	}
	return !strings.HasPrefix(name, "_")
}

// isFormatParameter reports whether a parameter affects the format of any response (R4 http.html#parameters).
func isFormatParameter(p smart.Parameter) bool {
	return p.Name == "_format" || p.Name == "_pretty" || p.Name == "_summary" || p.Name == "_elements"
}

func isSpecificParameter(p smart.Parameter) bool { return !isFormatParameter(p) }
