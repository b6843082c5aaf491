package examples

import (
	"encoding/pem"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
)

const (
	chartName  = "gateway-caddy-fhir" // chart name with the release name "gateway"
	secretsDir = "/run/secrets/caddy-fhir"
)

// checkPod checks the gateway's user, writable paths, probes and shutdown grace period.
func checkPod(t *testing.T, objects []runtime.Object) {
	pod := find[*apps.Deployment](t, objects, chartName).Spec.Template.Spec
	if c := pod.SecurityContext; !*c.RunAsNonRoot || *c.RunAsUser != 65532 || c.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault || *pod.AutomountServiceAccountToken {
		t.Errorf("security of the Pod: %+v", c)
	}
	gateway := pod.Containers[0]
	if c := gateway.SecurityContext; !*c.ReadOnlyRootFilesystem || *c.AllowPrivilegeEscalation || len(c.Capabilities.Drop) != 1 || c.Capabilities.Drop[0] != "ALL" || c.Capabilities.Add != nil {
		t.Errorf("security of the gateway: %+v", c)
	}
	for path, probe := range map[string]*core.Probe{"/live": gateway.LivenessProbe, "/started": gateway.ReadinessProbe} {
		if probe.HTTPGet.Path != path || probe.HTTPGet.Port.StrVal != "health" {
			t.Errorf("%s: %+v", path, probe)
		}
	}
	if *pod.TerminationGracePeriodSeconds != 60 || !strings.Contains(caddyfile(t, objects), "\tshutdown_delay 15s\n\tgrace_period 30s\n") {
		t.Errorf("ended after %d s", *pod.TerminationGracePeriodSeconds)
	}
	checkVolumes(t, pod)
}

// checkVolumes checks that each mount has a volume, and that secrets are files readable only by the gateway.
func checkVolumes(t *testing.T, pod core.PodSpec) {
	volumes := map[string]core.Volume{}
	for _, volume := range pod.Volumes {
		volumes[volume.Name] = volume
	}
	for _, container := range append(pod.InitContainers, pod.Containers...) {
		for _, variable := range container.Env {
			if variable.ValueFrom != nil {
				t.Errorf("%s is not in a file", variable.Name)
			}
		}
		for _, mount := range container.VolumeMounts {
			volume, ok := volumes[mount.Name]
			if !ok || (volume.Secret != nil) != (mount.MountPath == secretsDir) || volume.Secret != nil && container.Name != "gateway" {
				t.Errorf("%s in %s: %+v", mount.MountPath, container.Name, volume)
			}
		}
	}
}

// checkTogether checks that Pod selectors select the gateway's Pods, and that named ports exist.
func checkTogether(t *testing.T, objects []runtime.Object) {
	deployment := find[*apps.Deployment](t, objects, chartName)
	service := find[*core.Service](t, objects, chartName)
	ports := map[string]bool{}
	for _, port := range deployment.Spec.Template.Spec.Containers[0].Ports {
		ports[port.Name] = true
	}
	for _, port := range service.Spec.Ports {
		if !ports[port.TargetPort.StrVal] {
			t.Errorf("the Service targets an undefined port: %+v", port)
		}
	}
	selectors := map[string]*meta.LabelSelector{"Deployment": deployment.Spec.Selector, "Service": {MatchLabels: service.Spec.Selector}}
	for _, object := range objects {
		switch o := object.(type) {
		case *policy.PodDisruptionBudget:
			selectors["PodDisruptionBudget"] = o.Spec.Selector
		case *monitoring.ServiceMonitor:
			if o.Spec.Endpoints[0].Port != "metrics" || !selects(t, &o.Spec.Selector, service.Labels) {
				t.Errorf("the ServiceMonitor finds nothing: %+v", o.Spec)
			}
		}
	}
	for kind, selector := range selectors {
		if !selects(t, selector, deployment.Spec.Template.Labels) {
			t.Errorf("the %s selects %v", kind, selector)
		}
	}
}

func selects(t *testing.T, selector *meta.LabelSelector, of map[string]string) bool {
	t.Helper()
	s, err := meta.LabelSelectorAsSelector(selector)
	if err != nil {
		t.Fatal(err)
	}
	return !s.Empty() && s.Matches(labels.Set(of))
}

// checkPolicies checks that only configured peers can reach the gateway, and only the gateway can reach the FHIR server.
func checkPolicies(t *testing.T, objects []runtime.Object) {
	pod := find[*apps.Deployment](t, objects, chartName).Spec.Template
	own := find[*networking.NetworkPolicy](t, objects, chartName).Spec
	if !selects(t, &own.PodSelector, pod.Labels) || len(own.Ingress) == 0 {
		t.Errorf("%+v", own)
	}
	for i, rule := range own.Ingress {
		if len(rule.From) == 0 || len(rule.Ports) != 1 || rule.Ports[0].Port.StrVal != []string{"http", "metrics"}[i] {
			t.Errorf("%+v", rule)
		}
	}
	if len(pod.Spec.InitContainers) > 0 {
		return // the FHIR server is in the same Pod
	}
	theirs := find[*networking.NetworkPolicy](t, objects, chartName+"-fhir-server").Spec
	if selects(t, &theirs.PodSelector, pod.Labels) || len(theirs.PodSelector.MatchLabels) == 0 || len(theirs.Ingress) != 1 || len(theirs.Ingress[0].From) != 1 {
		t.Fatalf("%+v", theirs)
	}
	from := theirs.Ingress[0].From[0]
	if from.NamespaceSelector.MatchLabels["kubernetes.io/metadata.name"] != "fhir" || !selects(t, from.PodSelector, pod.Labels) {
		t.Errorf("from %+v", from)
	}
}

// caddyfile returns the Caddyfile of a gateway's Pods. It is an annotation that a volume mounts as a file.
func caddyfile(t *testing.T, objects []runtime.Object) string {
	pod := find[*apps.Deployment](t, objects, chartName).Spec.Template
	for _, volume := range pod.Spec.Volumes {
		if volume.Name != "caddyfile" {
			continue
		}
		file := volume.DownwardAPI.Items[0]
		key, _ := strings.CutPrefix(file.FieldRef.FieldPath, "metadata.annotations['")
		if text := pod.Annotations[strings.TrimSuffix(key, "']")]; text != "" && file.Path == "Caddyfile" {
			return text
		}
	}
	t.Fatal("the gateway has no Caddyfile")
	return ""
}

// checkCaddyfile provisions the Caddyfile, with temporary files in place of its secrets.
func checkCaddyfile(t *testing.T, objects []runtime.Object) {
	folder, authority := t.TempDir(), httptest.NewTLSServer(nil)
	defer authority.Close()
	for _, name := range []string{"store-password", "store-key", "hospital-client-secret"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte("MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: authority.Certificate().Raw})
	if err := os.WriteFile(filepath.Join(folder, "store-ca"), certificate, 0o600); err != nil {
		t.Fatal(err)
	}
	validate(t, strings.ReplaceAll(caddyfile(t, objects), secretsDir, folder), "CADDY_ADMIN=unix/"+folder+"/admin.sock")
}
