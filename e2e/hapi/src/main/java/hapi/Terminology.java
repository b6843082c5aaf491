package hapi;

import ca.uhn.fhir.context.FhirContext;
import ca.uhn.fhir.context.support.ConceptValidationOptions;
import ca.uhn.fhir.context.support.IValidationSupport.CodeValidationResult;
import ca.uhn.fhir.context.support.ValidationSupportContext;
import ca.uhn.fhir.rest.client.api.ServerValidationModeEnum;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.hl7.fhir.common.hapi.validation.support.RemoteTerminologyServiceValidationSupport;
import org.hl7.fhir.r4.model.IdType;
import org.hl7.fhir.r4.model.Parameters;
import org.hl7.fhir.r4.model.ValueSet;

/** HAPI's client of a terminology server. The arguments are the server's address and questions; it prints a line for each question. */
public class Terminology {

	private static final FhirContext R4 = FhirContext.forR4();

	private final String address;
	private final RemoteTerminologyServiceValidationSupport remote;

	private Terminology(String address) {
		this.address = address;
		remote = new RemoteTerminologyServiceValidationSupport(R4, address);
	}

	public static void main(String[] args) throws Exception {
		R4.getRestfulClientFactory().setServerValidationMode(ServerValidationModeEnum.NEVER);
		Terminology terminology = new Terminology(args[0]);
		Stream.of(args).skip(1).forEach(terminology::ask);
	}

	/** A question is expand|url, code|value set's url or nothing|system|code, or sent|value set in JSON|system|code. */
	private void ask(String question) {
		String[] words = question.split("\\|");
		System.out.println(
				switch (words[0]) {
					case "expand" -> expand(words[1]);
					case "code" -> text(remote.validateCode(context(), options(), words[2], words[3], null, words[1].isEmpty() ? null : words[1]));
					case "sent" -> text(remote.validateCodeInValueSet(context(), options(), words[2], words[3], null, R4.newJsonParser().parseResource(words[1])));
					default -> throw new IllegalArgumentException(question);
				});
	}

	private static ConceptValidationOptions options() {
		return new ConceptValidationOptions();
	}

	private ValidationSupportContext context() {
		return new ValidationSupportContext(remote);
	}

	/** Finds a value set by its url, and expands it by the id that was found. */
	private String expand(String url) {
		ValueSet found = (ValueSet) remote.fetchValueSet(url);
		ValueSet expanded = R4.newRestfulGenericClient(address).operation().onInstance(new IdType("ValueSet", found.getIdElement().getIdPart()))
				.named("$expand").withNoParameters(Parameters.class).returnResourceType(ValueSet.class).useHttpGet().execute();
		return expanded.getUrl() + " " + expanded.getExpansion().getContains().stream().map(ValueSet.ValueSetExpansionContainsComponent::getCode)
				.collect(Collectors.joining(","));
	}

	private static String text(CodeValidationResult result) {
		if (result == null) {
			return "nothing";
		}
		return (result.isOk() ? "ok " + result.getDisplay() : "not ok: " + result.getMessage())
				+ result.getIssues().stream().map(issue -> " [" + issue.getSeverity() + " " + issue.getDetails().getText() + "]").collect(Collectors.joining());
	}
}
