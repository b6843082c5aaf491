// Package sandbox is a feature for trying out SMART App Launch 2.2 with nothing but this gateway: a page
// that launches apps as an EHR does, and an app to launch. Both are off unless an operator
// switches them on.
//
//	feature.go     Sandbox, the option launch_page; the app as a client, and its page, whose script is scripts/sandboxapp.js;
//	               localApp, which stands for apps on the person's own computer
//	launchpage.go  the page: choose a patient and an app; what its form does
//
// The launch page is for whoever is signed in. It offers the patients that they may choose
// ([launch.Patients]), asked for with their own rights, and launches apps for nobody but them:
// so an app gets no patient by it that a standalone launch would not give.
//
// The app is a public client like any other. Its script knows the standard alone, and the
// guard treats its tokens as those of other apps.
package sandbox
