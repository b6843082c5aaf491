package interaction

import (
	"errors"
	"net/http"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
)

// Reference names a resource on the server.
type Reference struct {
	// Type is a resource type.
	Type string
	// ID is the logical id.
	ID string
}

// String is the relative reference, such as Patient/1.
func (r Reference) String() string { return r.Type + "/" + r.ID }

// Interaction is one request of FHIR's REST API. [Parse] makes it.
type Interaction struct {
	// Kind is what the request does.
	Kind Kind
	// Type is the resource type, if the path names one. Of a [CompartmentSearch] it is the type to be found, "*" for all.
	Type string
	// ID is the logical id, if the path names one and it is not that of a compartment.
	ID string
	// VersionID is the version that a [VRead] asks for.
	VersionID string
	// Compartment is where a [CompartmentSearch] looks.
	Compartment Reference
	// Operation is the name of an [Operation] with its dollar sign, such as $everything.
	Operation string
	// Parameters are those of the query, decoded and in their order, then those of the form of a search, or the criteria
	// of a [ConditionalCreate].
	Parameters []smart.Parameter
	// Async asks for an asynchronous answer (R4 async.html).
	Async bool
}

// Kind is what a request does. Its zero value is no interaction.
type Kind uint8

// The interactions of FHIR R4 (http.html#summary), the conditional ones by themselves.
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
	// CompartmentSearch is GET Patient/id/Type or Patient/id/*, or POST with _search behind the Type or instead of the
	// asterisk.
	CompartmentSearch
	// Create is POST Type.
	Create
	// ConditionalCreate is POST Type with the header If-None-Exist.
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
	// Bundle is POST to the base: a batch or a transaction, as the body says.
	Bundle
	// Operation is GET or POST of a $name, behind the base, a Type or a Type/id.
	Operation
)

// kindNames are the codes of the CapabilityStatement (R4 valueset-restful-interaction.html) where there is one.
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

// String is the kind's code in a CapabilityStatement, or a word like those where it has none.
func (k Kind) String() string {
	if k == 0 || int(k) >= len(kindNames) {
		return "unknown"
	}
	return kindNames[k]
}

// permissions is the table of SMART App Launch 2.2 ("Scopes for requesting FHIR Resources"). Conditional forms search
// first, and their answer tells what was found.
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

// Permission is all that the scopes for the type must permit. It is nothing for what scopes do not decide by
// themselves: capabilities are public, an operation is decided by its name, and a bundle by its entries.
func (i Interaction) Permission() smart.Permission {
	if int(i.Kind) >= len(permissions) {
		return 0
	}
	return permissions[i.Kind]
}

// Path is the path below the base, without a slash at either end. No character in it needs encoding in a URL.
func (i Interaction) Path() string {
	switch i.Kind {
	case Capabilities:
		return "metadata"
	case TypeSearch:
		return i.Type
	case CompartmentSearch:
		return i.Compartment.String() + "/" + i.Type
	case SystemHistory, TypeHistory, InstanceHistory:
		return join(i.Type, i.ID, "_history")
	case VRead:
		return join(i.Type, i.ID, "_history", i.VersionID)
	default:
		return join(i.Type, i.ID, i.Operation)
	}
}

// join is path.Join for segments that are clean or empty.
func join(segments ...string) string {
	path := ""
	for _, segment := range segments {
		if path != "" && segment != "" {
			path += "/"
		}
		path += segment
	}
	return path
}

// typeNames are the resource types of FHIR R4 (resourcelist.html). Two more of its 148 names, Resource and
// DomainResource, are abstract, and no request can be about them.
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

var resourceTypes = setOf(typeNames)

// compartments are the types that have a CompartmentDefinition (R4 compartmentdefinition.html).
var compartments = setOf("Device Encounter Patient Practitioner RelatedPerson")

func setOf(words string) map[string]bool {
	set := make(map[string]bool)
	for word := range strings.FieldsSeq(words) {
		set[word] = true
	}
	return set
}

// Types are the resource types of FHIR R4 in alphabetical order.
func Types() []string { return strings.Fields(typeNames) }

// IsType reports whether name is a resource type of FHIR R4.
func IsType(name string) bool { return resourceTypes[name] }

// isCompartment reports whether resources of the type have a compartment.
func isCompartment(name string) bool { return compartments[name] }

// The causes for which [Parse] refuses a request, each with its status. Errors hold no part of the request, which may
// tell of patients.
var (
	// errPath says that the path is none of FHIR's (R4 http.html#summary), 404.
	errPath = errors.New("no path of FHIR's REST API")
	// errType says that the path names a type that FHIR R4 does not have (resourcelist.html), 404.
	errType = errors.New("unknown resource type")
	// errID says that an id or version id is not 1 to 64 letters, digits, hyphens and dots (R4 datatypes.html#id), or is
	// a dot segment (RFC 3986 §3.3), 404.
	errID = errors.New("malformed id")
	// errMethod says that FHIR defines no interaction of this method for the path (RFC 9110 §15.5.6), 405.
	errMethod = errors.New("no interaction of this method")
	// errQuery says that the query or form can be read in two ways, or has parameters that the interaction has no place
	// for, 400.
	errQuery = errors.New("ambiguous query")
	// errCriteria says that a conditional interaction has no criteria, or several sets of them (R4 http.html#ccreate,
	// #cond-update, #3.1.0.7.1), 400.
	errCriteria = errors.New("no criteria, or two sets of them")
	// errForm says that a form was given to another interaction than a search (R4 http.html#search), 400.
	errForm = errors.New("no search to have a form")
)

// Status is the HTTP status for an error of this package.
func Status(err error) int {
	switch {
	case errors.Is(err, errPath), errors.Is(err, errType), errors.Is(err, errID):
		return http.StatusNotFound
	case errors.Is(err, errMethod):
		return http.StatusMethodNotAllowed
	default:
		return http.StatusBadRequest
	}
}
