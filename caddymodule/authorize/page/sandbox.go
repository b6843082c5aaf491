package page

// LaunchPage is what templates/launchpage.html shows: a small EHR.
type LaunchPage struct {
	Request    string        // sealed
	Person     Person        // who is signed in
	Problem    LaunchProblem // with the choice, or with what is offered
	Apps       []LaunchApp   // to choose among
	Searchable bool          // by the following
	Name       string        // as typed
	BirthDate  string        // as typed
	Identifier string        // as typed
	Patients   []Patient     // to choose among
	More       bool          // others match too
	Chosen     string        // the id of the patient who is ticked; may be ""

	Local       bool   // an app on the person's own computer can be launched at
	LaunchURI   string // as typed
	LocalChosen bool   // it is ticked
}

// LaunchApp is an app to launch.
type LaunchApp struct {
	ID     string // the client_id
	Name   string // its title
	At     string // the host of its launch URI
	Chosen bool   // it is ticked
}

// LaunchProblem is why the launch page is shown again, or empty.
type LaunchProblem struct {
	NoApp   bool // no app was chosen that can be launched
	Unseen  bool // the patient may not be chosen
	Invalid bool // the app must not be told so
	Down    bool // the FHIR server does not answer

	NotLocal bool // what was typed does not lead to the person's own computer
}

// SandboxApp is what templates/sandboxapp.html shows: an app, with what its script needs.
type SandboxApp struct {
	ClientID    string // the client_id
	RedirectURI string // where answers are sent
	FHIRBase    string // the address of the FHIR API
	Scope       string // what the app asks for, beside the launch scope
}
