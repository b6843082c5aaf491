package page

// SelectPatient is what templates/selectpatient.html shows.
type SelectPatient struct {
	Client     string        // the client's title
	Request    string        // sealed
	Problem    ChoiceProblem // with the choice, or with what is offered
	Searchable bool          // by the following
	Name       string        // as typed
	BirthDate  string        // as typed
	Identifier string        // as typed
	Patients   []Patient     // to choose among
	More       bool          // others match too
}

// Patient is a patient to choose. All fields but ID may be "".
type Patient struct {
	ID         string // of the resource
	Name       string // in full
	BirthDate  string // as FHIR writes it
	Identifier string // such as a medical record number
	Address    string // in one line
	Gender     *Text  // administrative
}

// SelectEncounter is what templates/selectencounter.html shows.
type SelectEncounter struct {
	Client     string        // the client's title
	Request    string        // sealed
	Problem    ChoiceProblem // with the choice, or with what is offered
	Patient    string        // the name; may be ""
	Encounters []Encounter   // to choose among, the latest first
	More       bool          // there are earlier ones
}

// Encounter is a visit to choose. All fields but ID may be "".
type Encounter struct {
	ID    string // of the resource
	Kind  string // its type or class
	Start string // as FHIR writes it
	Place string // the organization's name
}

// ChoiceProblem is why a page to choose on is shown again, or empty.
type ChoiceProblem struct {
	Unseen bool // what was chosen may not be
	Down   bool // the FHIR server does not answer
}

// Gender is the word for a code of FHIR's AdministrativeGender; nil for unknown, which needs
// none.
func Gender(code string) *Text {
	switch code {
	case "female":
		return T("female")
	case "male":
		return T("male")
	case "other":
		return T("other gender")
	}
	return nil
}
