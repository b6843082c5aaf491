package access

import "strings"

// Effect is what a FHIR server may do because a resource of a type is stored, beyond storing it. What it sends or asks
// then goes around the scopes of whoever wrote the resource, so the write is judged by it.
type Effect string

const (
	// Inert is nothing: a server reads it when it is asked to, and that request is judged.
	Inert Effect = "inert"
	// Sends is that it sends what a search finds, as the resources change (Subscription).
	Sends Effect = "sends"
	// Asks is that it may be carried out, with the searches that its texts hold (Task, CommunicationRequest).
	Asks Effect = "asks"
	// Steers is that it changes what searches find, where messages go, or what is done at an event.
	Steers Effect = "steers"
	// Carries is that it may be one of those in another form: a Bundle of requests or a message, a topic in a Basic.
	Carries Effect = "carries"
)

// effects are those of R4's types. A type without a row is written by those alone who may read and search everything.
var effects = effectsByType(map[Effect]string{
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

func effectsByType(types map[Effect]string) map[string]Effect {
	byType := map[string]Effect{}
	for effect, names := range types {
		for name := range strings.FieldsSeq(names) {
			byType[name] = effect
		}
	}
	return byType
}

// EffectOf is what a server may do because a resource of the type is stored; empty if that has not been decided.
func EffectOf(resourceType string) Effect { return effects[resourceType] }
