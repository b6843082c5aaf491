package page

// Consent is what templates/consent.html shows.
type Consent struct {
	Client  string         // the client's title
	Links   AppLinks       // that the client registered
	Request string         // sealed
	To      string         // the host of the redirect URI
	Person  Person         // who is asked
	Unknown bool           // the client registered itself
	Patient ConsentPatient // whom the client is opened for
	Fixed   []*Text        // what cannot be unticked
	Groups  []ConsentGroup // what can
}

// ConsentPatient is whom a client is opened for; zero for nobody, or for who is asked.
type ConsentPatient struct {
	ID        string // of the resource
	Name      string // "" if it is unknown
	BirthDate string // as in FHIR; may be empty
}

// ConsentGroup is a group of checkboxes.
type ConsentGroup struct {
	Legend *Text         // what they have in common
	Items  []ConsentItem // in their order
}

// ConsentItem is a checkbox, with those by which less of the same can be given.
type ConsentItem struct {
	Name        string        // of the form's field
	Text        *Text         // what is allowed
	Detail      *Text         // what can be done with it; may be nil
	Ticked      bool          // to begin with
	Limited     bool          // not all below it is ticked
	Permissions []ConsentItem // reading and writing apart
	Parts       []ConsentItem // by kind of data
	Times       []ConsentTime // for how long
}

// ConsentTime is a time to choose.
type ConsentTime struct {
	Value  string // of the form's field
	Text   *Text  // such as "30 days"
	Ticked bool   // to begin with
}
