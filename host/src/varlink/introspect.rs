//! Dispatch of calls: answers those of `org.varlink.service`, the interface that describes a service's interfaces.
//! Passes calls of methods that the service defines to the service.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Call, InterfaceDescription, Service};

const NAME: &str = "org.varlink.service";

const SELF: InterfaceDescription = InterfaceDescription {
    name: NAME,
    text: "\
# The Varlink Service Interface is provided by every varlink service. It
# describes the service and the interfaces it implements.
interface org.varlink.service

# Get a list of all the interfaces a service provides and information
# about the implementation.
method GetInfo() -> (
  vendor: string,
  product: string,
  version: string,
  url: string,
  interfaces: []string
)

# Get the description of an interface that is implemented by this service.
method GetInterfaceDescription(interface: string) -> (description: string)

# The requested interface was not found.
error InterfaceNotFound (interface: string)

# The requested method was not found.
error MethodNotFound (method: string)

# The interface defines the requested method, but the service does not
# implement it.
error MethodNotImplemented (method: string)

# One of the passed parameters is invalid.
error InvalidParameter (parameter: string)

# Client is denied access
error PermissionDenied ()

# Method is expected to be called with 'more' set to true, but wasn't
error ExpectedMore ()
",
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WhichInterface {
    interface: String,
}

/// Answers `call` from the interface descriptions, or passes it to the service if the service defines the method and
/// permits the peer. Frees the request's memory before writing an error, because the client may read that error slowly.
pub(super) async fn dispatch<S: Service>(service: &S, call: Call) {
    let known = service.describe();
    let (interface, method) = call.method.rsplit_once('.').unwrap_or(("", &call.method));
    let error = match find(known, interface) {
        None => Err(("org.varlink.service.InterfaceNotFound".to_owned(), json!({ "interface": interface }))),
        Some(description) if !defines(description.text, method) => {
            Err(("org.varlink.service.MethodNotFound".to_owned(), json!({ "method": method })))
        }
        Some(_) if interface == NAME => Ok(method == "GetInfo"),
        Some(_) => match service.permit(method, &call.peer) {
            Ok(()) => return service.call(call).await,
            Err(text) => Err((format!("{interface}.PermissionDenied"), json!({ "text": text }))),
        },
    };
    // A client that has disconnected makes no difference: the call has ended.
    let _ = match error {
        Err((name, parameters)) => call.into_reply().error(&name, parameters).await,
        Ok(true) => call.into_reply().done(info(service)).await,
        Ok(false) => {
            let Some((which, _, reply)) = call.parse::<WhichInterface>().await else {
                return;
            };
            match find(known, &which.interface) {
                Some(found) => reply.done(json!({ "description": found.text })).await,
                None => {
                    let interface = json!({ "interface": which.interface });
                    reply.error("org.varlink.service.InterfaceNotFound", interface).await
                }
            }
        }
    };
}

fn info<S: Service>(service: &S) -> Value {
    let about = service.about();
    let interfaces: Vec<&str> = std::iter::once(NAME).chain(service.describe().iter().map(|i| i.name)).collect();
    json!({
        "vendor": about.vendor, "product": about.product, "version": about.version, "url": about.url,
        "interfaces": interfaces,
    })
}

fn find<'k>(known: &'k [InterfaceDescription], name: &str) -> Option<&'k InterfaceDescription> {
    std::iter::once(&SELF).chain(known).find(|interface| interface.name == name)
}

/// Returns `true` if an interface text defines a method.
fn defines(text: &str, method: &str) -> bool {
    text.lines().filter_map(|line| line.strip_prefix("method ")).any(|rest| {
        let rest = rest.trim_start();
        rest.strip_prefix(method).is_some_and(|after| !method.is_empty() && after.trim_start().starts_with('('))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_is_defined_by_its_line() {
        let text = "interface a.b\n# method No()\nmethod Get() -> ()\nmethod  Set (x: int) -> ()\nerror Gone()\n";
        for (method, expect) in
            [("Get", true), ("Set", true), ("Ge", false), ("No", false), ("Gone", false), ("", false), ("Get()", false)]
        {
            assert_eq!(defines(text, method), expect, "{method}");
        }
        assert!(defines(SELF.text, "GetInfo") && defines(SELF.text, "GetInterfaceDescription"));
    }
}
