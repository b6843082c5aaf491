package page

import (
	"html/template"
	"net/http"
	"net/url"
	"time"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/authorize/endpoint"
)

// SignIn is what templates/signin.html shows.
type SignIn struct {
	Client   string        // the client's title
	Links    AppLinks      // that the client registered
	Request  string        // sealed
	Username string        // as typed last, or as the client suggests
	Problem  SignInProblem // with the last attempt
	Local    bool          // people can sign in by password
	Passkey  *Passkey      // people can sign in with one; nil if they cannot
	ByEmail  bool          // an e-mail address may lead to a provider
	Ways     []SignInWay   // the providers
}

// SignInProblem is why the sign-in page is shown again. Each field may be zero.
type SignInProblem struct {
	Wrong bool          // the last attempt was
	Wait  time.Duration // until the next attempt
	Down  string        // the provider that cannot be reached
	Busy  time.Duration // until the next attempt, because there are too many others

	Passkey bool // it was not accepted
}

// Passkey is a challenge that the script "passkey" answers. Without scripts, pages do not
// show it.
type Passkey struct {
	Options string // for navigator.credentials, in JSON
	Sealed  string // comes back with the answer
}

// Any reports whether there is a problem.
func (p SignInProblem) Any() bool { return p != SignInProblem{} }

// SignInWay is a link to an identity provider.
type SignInWay struct {
	Name    string // the provider's
	Address string // where the link leads
}

// SecondFactor is what templates/secondfactor.html shows.
type SecondFactor struct {
	Client string        // the client's title
	Factor string        // the pending sign-in
	Wrong  bool          // the last code was
	Wait   time.Duration // until the next attempt

	Code          bool     // it can be a code
	App, Recovery bool     // what codes there are
	Passkey       *Passkey // it can be a passkey; nil if it cannot
	WrongPasskey  bool     // it was not accepted
}

// SelectAccount is what templates/selectaccount.html shows.
type SelectAccount struct {
	Client  string // the client's title
	Request string // sealed
	Person  Person // who is signed in
}

// Person is whom pages speak of.
type Person struct {
	Name   string // the best that is known
	Detail string // tells namesakes apart; may be ""
}

// Refused is what templates/refused.html shows.
type Refused struct {
	Client   string // the client's title; "" if it is for a page
	Refused  string // the sign-in, sealed
	Person   Person // who may not sign in here
	Provider string // who signed them in
	SignsOut bool   // it can sign them out
}

// SignOut is what templates/signout.html shows.
type SignOut struct {
	Client  string // the client's title; "" if the request names none
	Request string // sealed
}

// FormPost is what templates/formpost.html shows: a form that the script "submit" sends, or
// without scripts a button.
type FormPost struct {
	Client   string  // the client's title
	Address  string  // where the form leads
	Fields   []Field // what it sends
	Question *Text   // for the person, whom no script takes on then; may be nil
}

// Field is a form's hidden field.
type Field struct {
	Name  string // of the parameter
	Value string // of the parameter
}

// Message is what templates/message.html shows.
type Message struct {
	Title  *Text  // the heading
	Text   *Text  // what happened, and what the person can do
	Detail string // for the client's developer, in English
	Next   *Link  // where to go from here; may be nil
}

// Link leads to another page.
type Link struct {
	Address string // where
	Text    *Text  // what it is called
}

// ShowMessage shows a message.
func (s *Site) ShowMessage(w http.ResponseWriter, r *http.Request, status int, message Message) {
	s.Show(w, r, View{Template: "message", Status: status, Data: message})
}

// AppLinks are what an app that registered itself shows of itself (RFC 7591 §2). Nobody has
// checked them. A browser loads nothing from the app: its logo comes from here.
type AppLinks struct {
	Client string // the client's title
	Logo   string // the address of its logo here, or ""
	Policy string // the address of its privacy policy, or ""
	Terms  string // that of its terms of use, or ""
}

// LogoOf is where the logo of a client is.
func LogoOf(clientID string) string {
	return endpoint.ClientLogo + "?client_id=" + url.QueryEscape(clientID)
}

// Images are what a page with these links loads, for its [Policy].
func (a AppLinks) Images() string {
	if a.Logo == "" {
		return ""
	}
	return "'self'"
}

// Account is what templates/account.html shows: a page of one's own.
type Account struct {
	Request  string           // sealed
	Person   Person           // whose page it is
	Done     *Text            // what they have just done; nil for nothing
	Apps     []AccountApp     // with access in their name
	Sessions []AccountSession // of theirs
	Factors  AccountFactors   // of theirs
}

// AccountApp is an app that has access.
type AccountApp struct {
	ID    string  // the client_id
	Name  string  // its title
	Since *Text   // when it was given access
	Used  *Text   // when it last used it; nil if unknown
	Keeps *Text   // until when it has it
	Scope []*Text // what to

	Records []AccountRecords // whose they are that it has access to
}

// AccountRecords are those of a patient that an app has access to.
type AccountRecords struct {
	Whose *Text  // in words
	Since *Text  // when access was given
	Until string // the date when it ends; "" for the end of the session
}

// AccountSession is a browser in which somebody is signed in.
type AccountSession struct {
	ID      string // the sid
	Device  *Text  // browser and system
	Since   *Text  // when they signed in
	By      string // the identity provider, or ""
	Network string // the network of the address
	Current bool   // it is this one
}

// AccountFactors are a person's second factors.
type AccountFactors struct {
	Local      bool             // they have them here
	Provider   string           // where else they sign in; "" if that is unknown
	Configured bool             // an authenticator app that cannot be removed here
	App        *Text            // when they enrolled one; nil for none
	Recovery   int              // codes that are left
	Any        bool             // there is a factor
	CanPasskey bool             // this site can have passkeys
	Passkeys   []AccountPasskey // oldest first
}

// AccountPasskey is a passkey.
type AccountPasskey struct {
	ID    string // of the credential
	Name  string // as the person calls it
	Added *Text  // when
	Used  *Text  // when it was last used; nil for never
}

// AppSetup is what templates/appsetup.html shows: how to enrol an authenticator app.
type AppSetup struct {
	Request string        // sealed
	Setup   string        // the new key, sealed
	QR      template.URL  // the key as a picture
	Secret  string        // the key in letters
	Wrong   bool          // the last code was
	Wait    time.Duration // until the next attempt
}

// PasskeySetup is what templates/passkeysetup.html shows.
type PasskeySetup struct {
	Request string   // sealed
	Name    string   // what it could be called
	Passkey *Passkey // the challenge
	Wrong   bool     // the last answer was
}

// RecoveryCodes is what templates/recoverycodes.html shows, once.
type RecoveryCodes struct {
	Codes []string // in the order in which they were made
	Done  *Text    // what brought them
}

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
