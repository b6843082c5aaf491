package access

import (
	"maps"
	"slices"
	"strings"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/compartment"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/resource"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/searchparam"
)

// Rule determines which resources of a type a patient-bound grant covers, for types that are not in FHIR R4's Patient
// compartment or have too broad a membership. Unset fields deny.
type Rule struct {
	name string
	// isApplicable reports whether the rule can be assigned to a type. Nil: to no type.
	isApplicable func(resourceType string) bool
	// permissions are the permissions that a patient-bound grant may have on the type.
	permissions smart.Permission
	// judgeRead judges a resource that is read or found by a search. Nil: no resource is covered.
	judgeRead func(c patientRecord, res resource.Resource) Verdict
	// judgeWrite judges a covered resource that a client writes, before and after the write; read is the verdict of judgeRead.
	// Nil: no resource may be written.
	judgeWrite func(c patientRecord, res resource.Resource, read Verdict) Verdict
	// confineSearch returns searches that together find all covered resources and as few others as possible. Nil: no search.
	confineSearch func(q Search) []Confinement
	// hasExactTotal is true if the searches find only covered resources, so the FHIR server's total is correct.
	hasExactTotal bool
	// isPatientOnly is true if covered resources belong to the patient alone.
	isPatientOnly bool
	// coversEveryPatient is true if all resources of the type are covered for every patient, so responses may include them.
	coversEveryPatient bool
	// mayBeReferenced reports whether records may refer to a resource of the type without a lookup. Nil: false.
	mayBeReferenced func(resourceType string) bool
	// isIndependent reports whether a resource can be judged without looking up others. Nil: false.
	isIndependent func(resourceType string) bool
}

// The rules. A new rule must be added here, to the list of rules for sites, and to the test. The functions that judge resources
// are in verdict.go, those that confine searches are below.
var (
	// everyoneRule covers resources to which all records may refer: readable and searchable for every patient, never writable.
	everyoneRule = &Rule{
		name: "everyone", isApplicable: anyType, permissions: smart.Read | smart.Search, judgeRead: patientRecord.judgeForEveryone,
		confineSearch: noConfinement, hasExactTotal: true, coversEveryPatient: true, mayBeReferenced: anyType, isIndependent: anyType,
	}
	// unassignedRule covers the patient's resources and those of no patient. Only the patient's may be written.
	unassignedRule = &Rule{
		name: "unassigned", isApplicable: anyType, permissions: allPermissions, judgeRead: patientRecord.judgeUnassigned, judgeWrite: patientRecord.judgeWriteAssigned,
		confineSearch: confineToPatientOrNone, hasExactTotal: true, isIndependent: anyType,
	}
	// securityContextRule covers a Binary if its securityContext refers to the patient or to a covered resource.
	securityContextRule = &Rule{
		name: "security_context", isApplicable: anyType, permissions: allPermissions, judgeRead: patientRecord.judgeSecurityContext, judgeWrite: patientRecord.requirePatientOnly,
		confineSearch: confineToCompartment, isPatientOnly: true,
	}
	// aboutRule covers a Provenance if every target is the patient or covered, and a document or collection if every entry is.
	// For other types, it uses the patient's compartment.
	aboutRule = &Rule{
		name: "about", isApplicable: anyType, permissions: allPermissions, judgeRead: patientRecord.judgeSubjects, judgeWrite: patientRecord.judgeWriteSubjects,
		confineSearch: confineToCompartment, isPatientOnly: true, isIndependent: isJudgedByCompartment,
	}
	// aloneRule covers resources in this patient's compartment only. A Group of several patients would reveal the others.
	aloneRule = &Rule{
		name: "alone", isApplicable: anyType, permissions: allPermissions, judgeRead: patientRecord.judgePatientOnly, judgeWrite: patientRecord.judgeWriteAsRead,
		confineSearch: confineToCompartment, isPatientOnly: true, isIndependent: anyType,
	}
	// patientRule covers a resource if its search parameter patient refers to this patient only.
	patientRule = &Rule{
		name: "patient", isApplicable: hasPatient, permissions: allPermissions, judgeRead: patientRecord.judgePatientParameter, judgeWrite: patientRecord.judgeWriteAsRead,
		confineSearch: confineToPatient, isPatientOnly: true, isIndependent: anyType,
	}
	// closedRule covers no resource.
	closedRule = &Rule{name: "closed", isApplicable: anyType}
	// compartmentRule is the default rule. It covers R4's Patient compartment. Types outside of every compartment are
	// definitions, which records may refer to.
	compartmentRule = &Rule{
		isApplicable: isInPatientCompartment, permissions: allPermissions, judgeRead: patientRecord.judgeCompartment, judgeWrite: patientRecord.requireSinglePatient,
		confineSearch: confineToCompartment, hasExactTotal: true, isPatientOnly: true, mayBeReferenced: isOutsideCompartment, isIndependent: anyType,
	}
)

// rules are the rules that a site can assign to types.
var rules = []*Rule{everyoneRule, unassignedRule, securityContextRule, aboutRule, aloneRule, patientRule, closedRule}

const allPermissions = smart.Create | smart.Read | smart.Update | smart.Delete | smart.Search

func anyType(string) bool { return true }

func isOutsideCompartment(resourceType string) bool { return !isInPatientCompartment(resourceType) }

// hasPatient reports whether a type has a search parameter named patient.
func hasPatient(resourceType string) bool {
	p, ok := searchparam.Lookup(resourceType, "patient")
	return ok && p.Kind == searchparam.Reference && len(p.Paths) > 0
}

// isJudgedByCompartment reports whether aboutRule judges resources of a type by their compartment membership.
func isJudgedByCompartment(resourceType string) bool {
	return resourceType != "Provenance" && resourceType != "Bundle"
}

// RuleNames returns the names of the rules that a site can assign to types.
func RuleNames() []string {
	names := make([]string, 0, len(rules))
	for _, r := range rules {
		names = append(names, r.name)
	}
	return names
}

// FindRule returns the rule with the given name, or nil.
func FindRule(name string) *Rule {
	if i := slices.IndexFunc(rules, func(r *Rule) bool { return r.name == name }); i >= 0 {
		return rules[i]
	}
	return nil
}

// AppliesTo reports whether the rule can be assigned to a type.
func (r *Rule) AppliesTo(resourceType string) bool {
	return r.isApplicable != nil && r.isApplicable(resourceType)
}

// TypeRules maps types to rules. Types without an entry follow the Patient compartment; if they are outside of it,
// patient-bound grants do not cover them.
type TypeRules map[string]*Rule

// defaultTypeRules are the rules for types to which a site assigns none.
var defaultTypeRules = TypeRules{
	"Organization": everyoneRule, "Practitioner": everyoneRule, "PractitionerRole": everyoneRule, "Location": everyoneRule,
	"HealthcareService": everyoneRule, "Endpoint": everyoneRule, "Medication": everyoneRule, "Substance": everyoneRule,
	"Questionnaire": everyoneRule,
	"Device":        unassignedRule,
	"Binary":        securityContextRule,
	"Provenance":    aboutRule,
	"Bundle":        aboutRule,
	"Group":         aloneRule,
}

// NewTypeRules returns the default rules, overridden by own.
func NewTypeRules(own TypeRules) TypeRules {
	s := maps.Clone(defaultTypeRules)
	maps.Copy(s, own)
	return s
}

// rule returns the rule of a type. A nil entry denies.
func (s TypeRules) rule(resourceType string) *Rule {
	r, ok := s[resourceType]
	switch {
	case !ok:
		return compartmentRule
	case r == nil:
		return closedRule
	}
	return r
}

// judgeRead judges by the type's rule whether a resource belongs to the patient or is readable for every patient.
func (c patientRecord) judgeRead(res resource.Resource) Verdict {
	if r := c.rules.rule(res.Type); r.judgeRead != nil {
		return r.judgeRead(c, res)
	}
	return notCovered
}

// judgeWrite judges whether a client may write a resource. The verdict for reading it is read.
func (c patientRecord) judgeWrite(res resource.Resource, read Verdict) Verdict {
	if r := c.rules.rule(res.Type); r.judgeWrite != nil && read.Covered {
		return r.judgeWrite(c, res, read)
	}
	return notCovered
}

// Confine returns searches that together find the resources of a type that a patient-bound grant covers, or none if the type
// cannot be searched.
func (s TypeRules) Confine(q Search) []Confinement {
	r := s.rule(q.Type)
	if r.confineSearch == nil {
		return nil
	}
	all := r.confineSearch(q)
	for i := range all {
		all[i].IsPatientOnly = r.isPatientOnly
	}
	return all
}

// HasExactTotal reports whether the searches of [TypeRules.Confine] find only covered resources, so the number of matches
// reveals nothing about others.
func (s TypeRules) HasExactTotal(resourceType string) bool { return s.rule(resourceType).hasExactTotal }

// IsPatientOnly reports whether the covered resources of a type belong to the patient alone.
func (s TypeRules) IsPatientOnly(resourceType string) bool { return s.rule(resourceType).isPatientOnly }

// belongsToPatient reports whether a covered resource belongs to the patient. Under unassignedRule, this depends on whether it
// refers to a patient.
func (s TypeRules) belongsToPatient(res resource.Resource) bool {
	return s.IsPatientOnly(res.Type) || !s.IsForAllPatients(res.Type) && NamesPatient(res)
}

// IsForAllPatients reports whether all resources of a type are covered for every patient.
func (s TypeRules) IsForAllPatients(resourceType string) bool {
	return s.rule(resourceType).coversEveryPatient
}

// MayBeReferenced reports whether a patient's records may refer to a resource of a type without a lookup.
func (s TypeRules) MayBeReferenced(resourceType string) bool {
	r := s.rule(resourceType)
	return r.mayBeReferenced != nil && r.mayBeReferenced(resourceType)
}

// UsesSecurityContext reports whether resources of a type are judged by securityContextRule.
func (s TypeRules) UsesSecurityContext(resourceType string) bool {
	return s.rule(resourceType) == securityContextRule
}

// MayNeedLookups reports whether judging a resource of a type may require looking up other resources.
func (s TypeRules) MayNeedLookups(resourceType string) bool {
	r := s.rule(resourceType)
	return r.isIndependent == nil || !r.isIndependent(resourceType)
}

// Search is a client's search of a type under a patient-bound grant.
type Search struct {
	// Type is the resource type.
	Type string
	// Patient is the id of the grant's patient.
	Patient string
	// Parameters are the client's search parameters.
	Parameters []smart.Parameter
	// InCompartment is true if the FHIR server supports compartment searches (Patient/id/Type).
	InCompartment bool
}

// Confinement confines a search to the resources that a grant covers.
type Confinement struct {
	// InCompartment is true if the search is sent as a compartment search.
	InCompartment bool
	// IsPatientOnly is true if the covered resources of the type belong to the patient alone.
	IsPatientOnly bool
	// Parameters are search parameters to add to the client's.
	Parameters []smart.Parameter
}

// missingPatient is the parameter that finds resources without a patient.
const missingPatient = "patient:missing"

// confinedBy returns a confinement by a single parameter.
func confinedBy(name, value string) Confinement {
	return Confinement{Parameters: []smart.Parameter{{Name: name, Value: value}}}
}

func noConfinement(Search) []Confinement { return []Confinement{{}} }

func confineToPatient(q Search) []Confinement {
	return []Confinement{confinedBy("patient", "Patient/"+q.Patient)}
}

// confineToPatientOrNone confines a search to resources of the patient and resources without a patient.
func confineToPatientOrNone(q Search) []Confinement {
	if slices.ContainsFunc(q.Parameters, func(p smart.Parameter) bool {
		return p.Name == "patient" && (p.Value == "Patient/"+q.Patient || p.Value == q.Patient)
	}) {
		return noConfinement(q)
	}
	return append(confineToPatient(q), confinedBy(missingPatient, "true"))
}

// confineToCompartment confines a search to the patient's compartment: by a compartment search if the FHIR server supports it,
// otherwise by one search for each membership parameter.
func confineToCompartment(q Search) []Confinement {
	if q.Type == "Patient" {
		return []Confinement{confinedBy("_id", q.Patient)}
	}
	names, ok := compartment.PatientParameters(q.Type)
	switch {
	case !ok:
		return nil
	case slices.ContainsFunc(q.Parameters, q.isConfinedBy):
		return noConfinement(q)
	case q.InCompartment:
		return []Confinement{{InCompartment: true}}
	}
	var all []Confinement
	for _, name := range names {
		all = append(all, confinedBy(name, "Patient/"+q.Patient))
	}
	return all
}

// Criteria returns search parameters that find a resource only as long as a grant covers it: those of the grant's constraint
// and of its patient. It returns none if no parameters can express the grant or if they do not currently find the resource,
// e.g. because only a policy allows it.
func (r *Rights) Criteria(g Grant, res resource.Resource) []smart.Parameter {
	finds := func(p smart.Parameter) bool { return r.MatchesSearch(p, res) }
	criteria := slices.Clone(g.Constraint)
	if g.Patient != "" {
		for _, c := range r.TypeRules.Confine(Search{Type: res.Type, Patient: g.Patient}) {
			if !slices.ContainsFunc(c.Parameters, func(p smart.Parameter) bool { return !finds(p) }) {
				criteria = append(criteria, c.Parameters...)
			}
		}
		if len(criteria) == len(g.Constraint) {
			return nil
		}
	}
	if slices.ContainsFunc(criteria, func(p smart.Parameter) bool { return !finds(p) }) {
		return nil
	}
	return criteria
}

// isConfinedBy reports whether a client's parameter, such as patient=Patient/a, already confines the search to the patient's
// compartment.
func (q Search) isConfinedBy(p smart.Parameter) bool {
	isID := p.Value == q.Patient
	if !isID && p.Value != "Patient/"+q.Patient {
		return false
	}
	name, modifier, _ := strings.Cut(p.Name, ":")
	by, ok := searchparam.Lookup(q.Type, name)
	if !ok || modifier != "" && modifier != "Patient" || !compartment.IsMembership(q.Type, by) {
		return false
	}
	return !isID || modifier != "" || refersOnlyToPatients(by)
}

// refersOnlyToPatients reports whether a parameter refers only to patients, so a bare id identifies a patient. In R4, this
// applies to every element with the name patient, regardless of the parameter's targets.
func refersOnlyToPatients(by searchparam.Parameter) bool {
	return !slices.ContainsFunc(by.Paths, func(path resource.Path) bool {
		return path.Target != "Patient" && path.Elements[len(path.Elements)-1] != "patient" && !slices.Equal(by.Targets, []string{"Patient"})
	})
}

// SideEffect is a side effect of storing a resource of a type. Messages and requests that the FHIR server sends bypass the
// client's scopes, so the write itself must be judged by its side effects.
type SideEffect string

const (
	// Inert means that storing the resource has no side effect.
	Inert SideEffect = "inert"
	// NotifiesRecipients means that the FHIR server sends matches of a search whenever resources change (Subscription).
	NotifiesRecipients SideEffect = "sends"
	// TriggersSearches means that the FHIR server may execute searches contained in the resource (Task, CommunicationRequest).
	TriggersSearches SideEffect = "asks"
	// AltersBehavior means that the resource changes the results of searches, the routing of messages, or the reaction to events.
	AltersBehavior SideEffect = "steers"
	// MayContainOthers means that the resource may contain a resource with a side effect in another form, e.g. a Bundle of
	// requests, a message, or a topic in a Basic.
	MayContainOthers SideEffect = "carries"
)

// sideEffects are the side effects of R4's types. Types without an entry require scopes to read and search everything.
var sideEffects = effectsByType(map[SideEffect]string{
	NotifiesRecipients: `Subscription`,
	TriggersSearches:   `CommunicationRequest Task`,
	AltersBehavior:     `CompartmentDefinition EventDefinition GraphDefinition MessageDefinition OperationDefinition PlanDefinition SearchParameter`,
	MayContainOthers:   `Basic Bundle`,
	Inert: `
Account ActivityDefinition AdverseEvent AllergyIntolerance Appointment AppointmentResponse AuditEvent Binary
BiologicallyDerivedProduct BodyStructure CapabilityStatement CarePlan CareTeam CatalogEntry ChargeItem ChargeItemDefinition
Claim ClaimResponse ClinicalImpression CodeSystem Communication Composition ConceptMap Condition Consent Contract Coverage
CoverageEligibilityRequest CoverageEligibilityResponse DetectedIssue Device DeviceDefinition DeviceMetric DeviceRequest
DeviceUseStatement DiagnosticReport DocumentManifest DocumentReference EffectEvidenceSynthesis Encounter Endpoint
EnrollmentRequest EnrollmentResponse EpisodeOfCare Evidence EvidenceVariable ExampleScenario ExplanationOfBenefit
FamilyMemberHistory Flag Goal Group GuidanceResponse HealthcareService ImagingStudy Immunization ImmunizationEvaluation
ImmunizationRecommendation ImplementationGuide InsurancePlan Invoice Library Linkage List Location Measure MeasureReport
Media Medication MedicationAdministration MedicationDispense MedicationKnowledge MedicationRequest MedicationStatement
MedicinalProduct MedicinalProductAuthorization MedicinalProductContraindication MedicinalProductIndication
MedicinalProductIngredient MedicinalProductInteraction MedicinalProductManufactured MedicinalProductPackaged
MedicinalProductPharmaceutical MedicinalProductUndesirableEffect MessageHeader MolecularSequence NamingSystem
NutritionOrder Observation ObservationDefinition OperationOutcome Organization OrganizationAffiliation Parameters Patient
PaymentNotice PaymentReconciliation Person Practitioner PractitionerRole Procedure Provenance Questionnaire
QuestionnaireResponse RelatedPerson RequestGroup ResearchDefinition ResearchElementDefinition ResearchStudy ResearchSubject
RiskAssessment RiskEvidenceSynthesis Schedule ServiceRequest Slot Specimen SpecimenDefinition StructureDefinition
StructureMap Substance SubstanceNucleicAcid SubstancePolymer SubstanceProtein SubstanceReferenceInformation
SubstanceSourceMaterial SubstanceSpecification SupplyDelivery SupplyRequest TerminologyCapabilities TestReport TestScript
ValueSet VerificationResult VisionPrescription`,
})

func effectsByType(types map[SideEffect]string) map[string]SideEffect {
	byType := map[string]SideEffect{}
	for effect, names := range types {
		for name := range strings.FieldsSeq(names) {
			byType[name] = effect
		}
	}
	return byType
}

// SideEffectOf returns the side effect of storing a resource of the given type, or "" if undefined.
func SideEffectOf(resourceType string) SideEffect { return sideEffects[resourceType] }
