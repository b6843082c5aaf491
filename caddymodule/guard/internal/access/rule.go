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

// Rule determines which resources of a type a patient-bound grant covers, for types that FHIR R4's Patient compartment does not
// contain or covers too broadly. An empty field denies.
type Rule struct {
	name string
	// fits reports whether a type can have the rule. Nil: no type.
	fits func(resourceType string) bool
	// permits are the permissions that a bound grant may have on the type.
	permits smart.Permission
	// covers judges a resource that is read or found. Nil: no resource is covered.
	covers func(c record, res resource.Resource) Verdict
	// writes judges a covered resource that a client writes, before and after the write; read is the verdict of covers. Nil: no
	// resource.
	writes func(c record, res resource.Resource, read Verdict) Verdict
	// confine returns searches that together find all covered resources, and as few others as possible. Nil: no search.
	confine func(q Search) []Confinement
	// counted is true if the searches find only covered resources, so that the FHIR server's total is correct.
	counted bool
	// own is true if covered resources belong to the patient alone.
	own bool
	// everyones is true if all resources of the type are covered for every patient, so that responses may include them.
	everyones bool
	// named reports whether records may refer to a resource of the type without a lookup. Nil: no.
	named func(resourceType string) bool
	// byItself reports whether a resource can be judged without looking up others. Nil: no.
	byItself func(resourceType string) bool
}

// The rules. A new rule needs an entry here, in the list of rules for sites, and in the test. verdict.go judges the resources;
// the searches are below.
var (
	// everyone: readable and searchable for every patient, never writable: the context that records refer to.
	everyone = &Rule{
		name: "everyone", fits: anyType, permits: smart.Read | smart.Search, covers: record.all,
		confine: unconfined, counted: true, everyones: true, named: anyType, byItself: anyType,
	}
	// unassigned: resources of the patient and those of no patient. Only the patient's may be written.
	unassigned = &Rule{
		name: "unassigned", fits: anyType, permits: allPermissions, covers: record.ownOrUnassigned, writes: record.assigned,
		confine: byPatientOrNone, counted: true, byItself: anyType,
	}
	// securityContext: Binary.securityContext refers to the patient, or to a resource that the grant covers.
	securityContext = &Rule{
		name: "security_context", fits: anyType, permits: allPermissions, covers: record.inContext, writes: record.ofOwn,
		confine: byCompartment, own: true,
	}
	// about: every Provenance.target, or every entry of a document or collection, is the patient or is covered. Other types:
	// the patient's compartment.
	about = &Rule{
		name: "about", fits: anyType, permits: allPermissions, covers: record.about, writes: record.aboutOwn,
		confine: byCompartment, own: true, byItself: isAboutItself,
	}
	// alone: in the compartment of this patient only. A Group of several patients would reveal the others.
	alone = &Rule{
		name: "alone", fits: anyType, permits: allPermissions, covers: record.judgePatientOnly, writes: record.asRead,
		confine: byCompartment, own: true, byItself: anyType,
	}
	// ownPatient: the search parameter patient finds the resource for this patient only.
	ownPatient = &Rule{
		name: "patient", fits: hasPatient, permits: allPermissions, covers: record.ofPatient, writes: record.asRead,
		confine: byPatient, own: true, byItself: anyType,
	}
	// closed: no resource.
	closed = &Rule{name: "closed", fits: anyType}
	// compartmental is the default rule: R4's Patient compartment. Types outside of every compartment are definitions, to which
	// records may refer.
	compartmental = &Rule{
		fits: isMember, permits: allPermissions, covers: record.inCompartment, writes: record.namingNoOther,
		confine: byCompartment, counted: true, own: true, named: isNoMember, byItself: anyType,
	}
)

// rules are the rules that a site can assign to types.
var rules = []*Rule{everyone, unassigned, securityContext, about, alone, ownPatient, closed}

const allPermissions = smart.Create | smart.Read | smart.Update | smart.Delete | smart.Search

func anyType(string) bool { return true }

func isNoMember(resourceType string) bool { return !isMember(resourceType) }

// hasPatient reports whether a type has the search parameter patient.
func hasPatient(resourceType string) bool {
	p, ok := searchparam.Lookup(resourceType, "patient")
	return ok && p.Kind == searchparam.Reference && len(p.Paths) > 0
}

// isAboutItself reports whether the rule about judges resources of a type by their own compartment.
func isAboutItself(resourceType string) bool {
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

// RuleNamed returns the rule with a name; nil if it does not exist.
func RuleNamed(name string) *Rule {
	if i := slices.IndexFunc(rules, func(r *Rule) bool { return r.name == name }); i >= 0 {
		return rules[i]
	}
	return nil
}

// AppliesTo reports whether a type can have the rule.
func (r *Rule) AppliesTo(resourceType string) bool { return r.fits != nil && r.fits(resourceType) }

// Shared are the rules by type. A type without an entry follows the Patient compartment; outside of the compartment it is
// closed to bound grants.
type Shared map[string]*Rule

// defaultShared are the rules of types that a site does not set.
var defaultShared = Shared{
	"Organization": everyone, "Practitioner": everyone, "PractitionerRole": everyone, "Location": everyone,
	"HealthcareService": everyone, "Endpoint": everyone, "Medication": everyone, "Substance": everyone,
	"Questionnaire": everyone,
	"Device":        unassigned,
	"Binary":        securityContext,
	"Provenance":    about,
	"Bundle":        about,
	"Group":         alone,
}

// NewShared returns the default rules with a site's changes.
func NewShared(own Shared) Shared {
	s := maps.Clone(defaultShared)
	maps.Copy(s, own)
	return s
}

// rule returns the rule of a type. A nil entry denies.
func (s Shared) rule(resourceType string) *Rule {
	r, ok := s[resourceType]
	switch {
	case !ok:
		return compartmental
	case r == nil:
		return closed
	}
	return r
}

// inside reports whether a resource belongs to the patient, or is readable for every patient.
func (c record) inside(res resource.Resource) Verdict {
	if r := c.rules.rule(res.Type); r.covers != nil {
		return r.covers(c, res)
	}
	return outside
}

// written reports whether a client may write a resource that is inside.
func (c record) written(res resource.Resource, read Verdict) Verdict {
	if r := c.rules.rule(res.Type); r.writes != nil && read.Covered {
		return r.writes(c, res, read)
	}
	return outside
}

// Confine returns searches that together find the resources of a type that a bound grant covers; none if the type cannot be
// searched.
func (s Shared) Confine(q Search) []Confinement {
	r := s.rule(q.Type)
	if r.confine == nil {
		return nil
	}
	all := r.confine(q)
	for i := range all {
		all[i].IsOwn = r.own
	}
	return all
}

// IsCounted reports whether the searches of [Shared.Confine] find only covered resources, so that the number of matches reveals
// nothing else.
func (s Shared) IsCounted(resourceType string) bool { return s.rule(resourceType).counted }

// IsPatientOnly reports whether the covered resources of a type belong to the patient alone.
func (s Shared) IsPatientOnly(resourceType string) bool { return s.rule(resourceType).own }

// isOwn reports whether a covered resource belongs to the patient. Under the rule unassigned, this depends on whether it names
// a patient.
func (s Shared) isOwn(res resource.Resource) bool {
	return s.IsPatientOnly(res.Type) || !s.IsForAllPatients(res.Type) && OfPatients(res)
}

// IsForAllPatients reports whether all resources of a type are covered for every patient.
func (s Shared) IsForAllPatients(resourceType string) bool { return s.rule(resourceType).everyones }

// MayBeReferenced reports whether a patient's records may refer to a resource of a type without a lookup.
func (s Shared) MayBeReferenced(resourceType string) bool {
	r := s.rule(resourceType)
	return r.named != nil && r.named(resourceType)
}

// IsSecured reports whether resources of a type are judged by their securityContext.
func (s Shared) IsSecured(resourceType string) bool { return s.rule(resourceType) == securityContext }

// Depends reports whether judging a resource of a type may require looking up others.
func (s Shared) Depends(resourceType string) bool {
	r := s.rule(resourceType)
	return r.byItself == nil || !r.byItself(resourceType)
}

// Search is a client's search of a type under a grant that is bound to a patient.
type Search struct {
	// Type is the resource type.
	Type string
	// Patient is the id of the grant's patient.
	Patient string
	// Parameters are the client's parameters.
	Parameters []smart.Parameter
	// InCompartment is true if the FHIR server supports searches in a patient's compartment.
	InCompartment bool
}

// Confinement confines a search to the resources that a grant covers.
type Confinement struct {
	// InCompartment is true for a search in the patient's compartment.
	InCompartment bool
	// IsPatientOnly is true if the covered resources of the type belong to the patient alone.
	IsOwn bool
	// Parameters are additional parameters.
	Parameters []smart.Parameter
}

// missingPatient is the parameter that finds resources without a patient.
const missingPatient = "patient:missing"

// by returns a confinement by a single parameter.
func by(name, value string) Confinement {
	return Confinement{Parameters: []smart.Parameter{{Name: name, Value: value}}}
}

func unconfined(Search) []Confinement { return []Confinement{{}} }

func byPatient(q Search) []Confinement { return []Confinement{by("patient", "Patient/"+q.Patient)} }

// byPatientOrNone confines to resources of the patient or of no patient.
func byPatientOrNone(q Search) []Confinement {
	if slices.ContainsFunc(q.Parameters, func(p smart.Parameter) bool {
		return p.Name == "patient" && (p.Value == "Patient/"+q.Patient || p.Value == q.Patient)
	}) {
		return unconfined(q)
	}
	return append(byPatient(q), by(missingPatient, "true"))
}

// byCompartment confines to the patient's compartment: by the FHIR server's compartment search if supported, and otherwise by
// one search for each membership parameter.
func byCompartment(q Search) []Confinement {
	if q.Type == "Patient" {
		return []Confinement{by("_id", q.Patient)}
	}
	names, ok := compartment.Patient(q.Type)
	switch {
	case !ok:
		return nil
	case slices.ContainsFunc(q.Parameters, q.isOf):
		return unconfined(q)
	case q.InCompartment:
		return []Confinement{{InCompartment: true}}
	}
	var all []Confinement
	for _, name := range names {
		all = append(all, by(name, "Patient/"+q.Patient))
	}
	return all
}

// Criteria returns search parameters that find a resource only as long as a grant covers it: those of the grant's constraint
// and of its patient. Empty if no parameters can express the grant, or if they do not currently find the resource, for example
// because only a policy allows it.
func (r *Rights) Criteria(g Grant, res resource.Resource) []smart.Parameter {
	finds := func(p smart.Parameter) bool { return r.MatchesSearch(p, res) }
	criteria := slices.Clone(g.Constraint)
	if g.Patient != "" {
		for _, c := range r.Shared.Confine(Search{Type: res.Type, Patient: g.Patient}) {
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

// isOf reports whether a client's parameter, such as patient=Patient/a, already confines the search to the patient's
// compartment.
func (q Search) isOf(p smart.Parameter) bool {
	isID := p.Value == q.Patient
	if !isID && p.Value != "Patient/"+q.Patient {
		return false
	}
	name, modifier, _ := strings.Cut(p.Name, ":")
	by, ok := searchparam.Lookup(q.Type, name)
	if !ok || modifier != "" && modifier != "Patient" || !compartment.IsMembership(q.Type, by) {
		return false
	}
	return !isID || modifier != "" || isToPatients(by)
}

// isToPatients reports whether a parameter refers only to patients, so that a bare id means a patient. In R4, this holds for
// every element with the name patient, regardless of the parameter's targets.
func isToPatients(by searchparam.Parameter) bool {
	return !slices.ContainsFunc(by.Paths, func(path resource.Path) bool {
		return path.Target != "Patient" && path.Elements[len(path.Elements)-1] != "patient" && !slices.Equal(by.Targets, []string{"Patient"})
	})
}

// SideEffect is a side effect of storing a resource of a type. Messages and requests of the FHIR server bypass the
// scopes of the client, so the write itself must be judged by it.
type SideEffect string

const (
	// Inert is no side effect.
	Inert SideEffect = "inert"
	// Sends means that the FHIR server sends matches of a search whenever resources change (Subscription).
	Sends SideEffect = "sends"
	// Asks means that the FHIR server may execute searches in the resource's text (Task, CommunicationRequest).
	Asks SideEffect = "asks"
	// Steers means that the resource changes the results of searches, the routing of messages, or the reaction to events.
	Steers SideEffect = "steers"
	// Carries means that the resource may contain one of these in another form: a Bundle of requests or a message, a topic in a Basic.
	Carries SideEffect = "carries"
)

// effects are the effects of R4's types. Types without an entry require scopes to read and search everything.
var effects = effectsByType(map[SideEffect]string{
	Sends:   `Subscription`,
	Asks:    `CommunicationRequest Task`,
	Steers:  `CompartmentDefinition EventDefinition GraphDefinition MessageDefinition OperationDefinition PlanDefinition SearchParameter`,
	Carries: `Basic Bundle`,
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

// SideEffectOf returns the side effect of storing a resource of a type; empty if undefined.
func SideEffectOf(resourceType string) SideEffect { return effects[resourceType] }
